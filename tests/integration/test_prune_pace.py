"""Retention works in small batches at one pace, and anybody can go on with it (rulings O6)."""

from __future__ import annotations

import pytest

from services.core.domain.errors import Unavailable
from services.core.store.queries import tenant_query
from services.scheduler.duties import prune as module
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.pruning import age_ends, counts, ended, new_prune

EXPLAINED: dict[str, tuple[str, str]] = {
    "runs": ("old_runs", "('2020-01-01', '1900-01-01', '00000000-0000-0000-0000-000000000000', 500, 5000)"),
    "events": (
        "old_events",
        "('00000000-0000-0000-0000-000000000000', '2020-01-01', '01000000-0000-0000-0000-000000000000', 500, 5000)",
    ),
    "usage": ("delete_usage", "('2020-01-01', 500)"),
}


async def test_a_batch_is_bounded_by_what_it_weighs(rows: LiveRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WEIGHT", 1_000)
    owner = await rows.owner()
    for _ in range(5):
        await rows.end(owner, await rows.held(owner), "completed")
    await rows.value("update rt.ends set steps = 600")
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    assert [(await prune.run_once())["runs"] for _ in range(3)] == [2, 2, 1]


async def test_all_schedulers_together_keep_one_pace(rows: LiveRows) -> None:
    owner = await rows.owner()
    for _ in range(20):
        await rows.end(owner, await rows.held(owner), "completed")
    await age_ends(rows, 31)
    first, second = (new_prune(rows.database, rows_per_s=1) for _ in range(2))
    await first.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    assert await first.run_once() == {"runs": 20}
    assert await second.run_once() == {}, "the pace is stored, not each scheduler's own"
    free_s = await rows.value("select extract(epoch from free_at - rt.now())::float8 from rt.prune_pace")
    assert 50 < free_s <= 60, "3 rows of each of the 20 runs, at one a second"
    await rows.value("update rt.prune_pace set free_at = rt.now()")
    assert await second.run_once() == {"runs": 0}, "another goes on where the first stopped"


async def test_two_schedulers_are_never_at_it_at_once(rows: LiveRows) -> None:
    prune = new_prune(rows.database)
    async with rows.database.transaction() as connection:
        await connection.execute("select from rt.prune_pace for update")
        assert await prune.run_once() == {}


async def test_each_tenant_has_its_time_of_the_day_and_none_waits_for_another(
    rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    others = [LiveRows(rows.database, await rows.value("select rt.create_tenant($1, '')", f"t{n}")) for n in range(40)]
    prune = new_prune(rows.database)
    await prune.run_once()
    times = await rows.rows("select next_at, next_at - rt.now() as ahead from rt.prune")
    assert len({row["next_at"] for row in times}) > 30
    assert all(0 < row["ahead"].total_seconds() <= 86_400 for row in times)
    owner = await rows.owner()
    for tenant, count in ((rows, 6), (others[0], 2)):
        for _ in range(count):
            await tenant.end(owner, await tenant.held(owner), "completed")
    await age_ends(rows, 31)
    await rows.value(
        "update rt.prune set next_at = rt.now() - tenant * interval '1 ms' where tenant = any ($1)",
        [rows.tenant, others[0].tenant],
    )
    await prune.run_once()
    await prune.run_once()
    left = {row["tenant"]: row["n"] for row in await rows.rows("select tenant, count(*) n from rt.runs group by 1")}
    assert left == {rows.tenant: 4}, "a long history is pruned in turns with the others'"


async def test_one_tenant_that_fails_does_not_stop_the_others(rows: LiveRows) -> None:
    other = LiveRows(rows.database, await rows.value("select rt.create_tenant('other', '')"))
    owner = await rows.owner()
    for tenant in (rows, other):
        await tenant.end(owner, await tenant.held(owner), "completed")
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now() - tenant * interval '1 s'")
    await rows.value(f"alter table t_{other.tenant}.runs rename to away")
    assert await prune.run_once() == {"failed": 1}
    assert await prune.run_once() == {"runs": 1}


async def test_a_batch_that_breaks_off_changes_nothing(hand: Hand, rows: LiveRows) -> None:
    run = await ended(hand)
    await age_ends(rows, 31)
    prune = new_prune(rows.database)
    await prune.run_once()
    await rows.value("update rt.prune set next_at = rt.now()")
    await rows.value(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'no' using errcode = '57014'; end $$"
    )
    await rows.value("create trigger refuse before update on rt.prune_pace for each row execute function refuse()")
    with pytest.raises(Unavailable, match="database is away"):
        await prune.run_once()
    assert await counts(rows, run) == {"runs": 1, "ends": 1, "steps": 1, "attempts": 1}
    await rows.value("drop trigger refuse on rt.prune_pace")
    assert await prune.run_once() == {"runs": 1}


@pytest.mark.parametrize("stage", EXPLAINED)
async def test_what_is_old_is_found_by_an_index(rows: LiveRows, stage: str) -> None:
    name, values = EXPLAINED[stage]
    async with rows.database.transaction() as connection:
        await connection.execute("set local enable_seqscan = off")
        await connection.execute(f"prepare looked as {tenant_query('retention', name, rows.tenant)}")
        plan = "\n".join(row[0] for row in await connection.fetch(f"explain execute looked {values}"))
    assert "Seq Scan" not in plan, plan
    assert "Index" in plan, plan
    assert "Sort" not in plan, plan
