"""Lost hints are repeated, usage is counted exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from services.core.domain.errors import Unavailable
from services.core.engine.hints import Hints
from services.core.store.database import Database
from services.scheduler.duties.rehint import BATCH, MAX_PENDING, Rehint
from services.scheduler.duties.usage import FoldUsage
from tests.support.live_rows import DAY_MS, LiveRows, Recorder


class Stream:
    """How much waits in the stream, as the test says."""

    def __init__(self, pending: int | None = 0) -> None:
        self.pending = pending

    async def __call__(self) -> int | None:
        return self.pending


async def wait_long(rows: LiveRows) -> None:
    await rows.value("update rt.live set qk = qk - interval '2 s' where st = 'q'")


async def test_a_run_that_waits_with_no_hint_pending_is_hinted_again(rows: LiveRows, recorder: Recorder) -> None:
    run = await rows.start_one()
    rehint = Rehint(rows.database, Hints(recorder), Stream())
    assert await rehint.run_once() == {"hinted": 0}, "its own hint may be under way"
    await wait_long(rows)
    await rows.asleep(DAY_MS)
    await rows.held(await rows.owner())
    assert await rehint.run_once() == {"hinted": 1}
    assert recorder.ready == [run]


@pytest.mark.parametrize("pending", [None, MAX_PENDING])
async def test_with_a_full_stream_or_no_nats_nothing_is_hinted(
    rows: LiveRows, recorder: Recorder, pending: int | None
) -> None:
    await rows.start_one()
    await wait_long(rows)
    assert await Rehint(rows.database, Hints(recorder), Stream(pending)).run_once() == {"hinted": 0}
    assert recorder.ready == []


@pytest.mark.parametrize("prio", [-600, 600])
async def test_a_priority_is_no_time_waited(rows: LiveRows, recorder: Recorder, prio: int) -> None:
    run = await rows.start_one(prio=prio)
    rehint = Rehint(rows.database, Hints(recorder), Stream())
    assert await rehint.run_once() == {"hinted": 0}
    await wait_long(rows)
    await rehint.run_once()
    assert recorder.ready == [run]


async def test_no_tenants_backlog_hides_anothers_run(rows: LiveRows, recorder: Recorder, database: Database) -> None:
    await rows.start(BATCH + 500)
    other = LiveRows(database, await rows.value("select rt.create_tenant('other', 'Other')"))
    run = await other.start_one()
    await wait_long(rows)
    await Rehint(rows.database, Hints(recorder), Stream()).run_once()
    assert run in recorder.ready
    assert len(recorder.ready) <= BATCH


async def test_c27_usage_is_folded_exactly_once_by_any_number_of_schedulers(rows: LiveRows) -> None:
    await rows.start(7)
    expected: Counter[tuple[int, str]] = Counter({(1, "r"): 7})
    for place in range(400):
        workflow, count = place % 3 + 1, place % 5
        await rows.value(
            "insert into rt.usage_delta (tenant, wf, day, kind, n) "
            "values ($1, $2, (rt.now() at time zone 'UTC')::date, 's', $3)",
            rows.tenant,
            workflow,
            count,
        )
        expected[(workflow, "s")] += count
    folds = [FoldUsage(rows.database) for _ in range(3)]
    counts = await asyncio.gather(*(fold.run_once() for fold in folds))
    assert sum(count["folded"] for count in counts) == 401
    assert await rows.value("select count(*) from rt.usage_delta") == 0
    found = await rows.rows("select wf, kind::text, n from rt.usage where tenant = $1", rows.tenant)
    assert {(row["wf"], row["kind"]): row["n"] for row in found} == expected
    await rows.start(2)
    await folds[0].run_once()
    assert await rows.value("select n from rt.usage where wf = 1 and kind = 'r'") == 9


async def test_a_fold_that_breaks_off_changes_nothing(rows: LiveRows) -> None:
    await rows.start(3)

    async def fold_and_lose_the_connection() -> None:
        async with rows.database.transaction() as connection:
            assert await connection.fetchval("select rt.fold_usage_v1(100)") == 1
            raise ConnectionAbortedError

    with pytest.raises(Unavailable):
        await fold_and_lose_the_connection()
    assert await FoldUsage(rows.database).run_once() == {"folded": 1}
    assert await rows.value("select n from rt.usage where kind = 'r'") == 3


async def test_usage_of_a_tenant_whose_tables_are_gone_keeps_nobody_elses(rows: LiveRows) -> None:
    gone = LiveRows(rows.database, await rows.value("select rt.create_tenant('gone', 'Gone')"))
    detached = LiveRows(rows.database, await rows.value("select rt.create_tenant('detached', 'Detached')"))
    for each in (gone, rows, detached):
        await each.start(2)
    async with rows.database.connection() as connection:
        await connection.execute(f"drop schema t_{gone.tenant} cascade")
        await connection.execute(f"alter table rt.usage detach partition t_{detached.tenant}.usage")
    assert await FoldUsage(rows.database).run_once() == {"folded": 3}
    found = await rows.rows("select tenant, n from rt.usage")
    assert [tuple(row) for row in found] == [(rows.tenant, 2)]
    assert await rows.value("select count(*) from rt.usage_delta") == 0


async def test_usage_lands_in_the_tenants_own_schema(rows: LiveRows) -> None:
    await rows.start(1)
    await FoldUsage(rows.database).run_once()
    assert await rows.value(f"select n from t_{rows.tenant}.usage where kind = 'r'") == 1
