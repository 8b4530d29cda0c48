"""Lists of runs: order, pages, filters, and what they cost when there are many (engine section 3)."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.errors import NotFound
from services.core.domain.op import OpError, RunCompleted, RunFailed, Sleep, WaitForEvent
from services.core.domain.run_record import RunFilter, RunRecord
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.ids import ulid_text, ulid_unix_ms
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.id_range import END
from services.core.store.queries import tenant_query
from services.core.store.runs import RunReader
from services.core.store.snapshot import snapshot
from tests.support.hand import Hand, playing

EVERYTHING = RunFilter()

# Ended runs of long ago, a second apart, every third of them failed; ids are of the time they were made at.
HISTORY = """
with made as (
    select n, to_timestamp(1000000000 + n) as at,
           (lpad(to_hex((1000000000 + n) * 1000::bigint), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid as id
    from generate_series(1, $3::int) n
), r as (
    insert into rt.runs (tenant, id, wf, project, created_at, source, event, event_name, event_ts, event_data, tags)
    select $1, id, $2, (select project from rt.workflows where tenant = $1 and id = $2), at, 'api', gen_random_uuid(),
           'runr/api.start', 0, '{}', case when n <= 2 then '["rare"]' else '[]' end::jsonb from made
)
insert into rt.ends (tenant, run, status, ended, epoch, rev, steps, bytes, att)
select $1, id, case when n % 3 = 0 then 'failed' else 'completed' end, at, 1, 1, 0, 0, 0 from made
"""


@pytest.fixture
def reader(database: Database) -> RunReader:
    return RunReader(database)


async def ids(reader: RunReader, hand: Hand, **wanted: object) -> list[UUID]:
    """All ids that a filter finds."""
    found = await every_run(reader, hand.tenant, RunFilter(**wanted))  # type: ignore[arg-type]
    return [run.id for run in found]


async def every_run(reader: RunReader, tenant: int, wanted: RunFilter, *, limit: int = 50) -> list[RunRecord]:
    runs: list[RunRecord] = []
    after = None
    while True:
        page = await reader.list(tenant, wanted, after=after, limit=limit)
        assert len(page.runs) <= limit
        runs += page.runs
        after = page.next
        if after is None:
            return runs


@pytest.fixture
async def states(hand: Hand) -> dict[str, UUID]:
    """A run in every state, oldest first."""
    names = ("queued", "delayed", "running", "sleeping", "waiting", "completed", "failed", "cancelled")
    runs = {name: await hand.start("work", delay_ms=60_000 if name == "delayed" else None) for name in names}
    await hand.answer(runs["running"])
    await hand.answer(runs["sleeping"], Sleep(id="nap", name="nap", for_ms=60_000))
    await hand.answer(runs["waiting"], WaitForEvent(id="w", name="w", event="e", timeout_ms=60_000))
    await hand.answer(runs["completed"], RunCompleted(output='"big"'))
    await hand.answer(runs["failed"], RunFailed(error=OpError("E", "m", "stack"), non_retriable=True))
    await hand.cancel(runs["cancelled"])
    return runs


async def test_the_newest_run_is_first_and_payloads_stay_away(
    reader: RunReader, hand: Hand, states: dict[str, UUID]
) -> None:
    found = await every_run(reader, hand.tenant, EVERYTHING)
    assert [run.id for run in found] == list(reversed(states.values()))
    shown = {run.id: run.state for run in found}
    assert {name: shown[id] for name, id in states.items()} == {name: name for name in states} | {"delayed": "queued"}
    assert all(run.output is None and run.event is None and run.attempts == () for run in found)
    delayed = next(run for run in found if run.id == states["delayed"])
    assert delayed.due_ms is not None
    assert delayed.due_ms - delayed.created_ms == pytest.approx(60_000, abs=1)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"queued"}, ["queued", "delayed"]),
        ({"running"}, ["running"]),
        ({"sleeping", "waiting"}, ["sleeping", "waiting"]),
        ({"completed"}, ["completed"]),
        ({"failed", "cancelled"}, ["failed", "cancelled"]),
        ({"running", "failed"}, ["running", "failed"]),
        ({"running", "completed"}, ["running", "completed"]),
        ({"timed_out"}, []),
    ],
)
async def test_states(
    reader: RunReader, hand: Hand, states: dict[str, UUID], wanted: set[str], expected: list[str]
) -> None:
    names = {id: name for name, id in states.items()}
    for workflow in (None, "work"):
        found = await ids(reader, hand, states=frozenset(wanted), workflow=workflow)
        assert [names[id] for id in reversed(found)] == expected
    assert await ids(reader, hand, states=frozenset(wanted), workflow="other") == []


@pytest.mark.parametrize("limit", [1, 2, 7, 50])
async def test_pages_hold_every_run_once_though_runs_start_and_end_meanwhile(
    reader: RunReader, hand: Hand, limit: int
) -> None:
    started = [await hand.start("work") for _ in range(7)]
    seen: list[UUID] = []
    after = None
    while True:
        page = await reader.list(hand.tenant, EVERYTHING, after=after, limit=limit)
        seen += [run.id for run in page.runs]
        after = page.next
        if after is None:
            break
        await hand.start("work")
        await hand.answer(started[0] if len(seen) == 1 else await hand.start("work"), RunCompleted())
    assert seen == list(reversed(started))


async def test_by_project_and_workflow(reader: RunReader, hand: Hand, database: Database, sealer: Sealer) -> None:
    async with database.transaction() as connection:
        await create_project(connection, sealer, hand.tenant, "second", ProjectChange(name=""))
    await hand.declare({"name": "work"}, {"name": "rest"})
    await hand.declare({"name": "work"}, project="second")
    async with playing(database, hand.tenant, "second") as second:
        a, b, c = await hand.start("work"), await hand.start("rest"), await second.start("work")
    assert await ids(reader, hand) == [c, b, a]
    assert await ids(reader, hand, project="default") == [b, a]
    assert await ids(reader, hand, project="second") == [c]
    assert await ids(reader, hand, workflow="work") == [c, a]
    assert await ids(reader, hand, project="second", workflow="work") == [c]
    assert await ids(reader, hand, project="second", workflow="rest") == []
    with pytest.raises(NotFound):
        await ids(reader, hand, project="third")


async def test_runs_are_found_by_id_key_and_event(reader: RunReader, hand: Hand) -> None:
    await hand.declare(
        {"name": "work", "triggers": [{"event": "order"}]},
        {"name": "once", "triggers": [{"event": "order"}], "idempotency": "event.data.n"},
    )
    plain = await hand.start("work")
    keyed = await hand.start("work", idempotency_key="key-1")
    accepted = await hand.send("order", '{"n": 7}', event_id="order-1")
    assert len(accepted.runs) == 2
    newest_first = sorted(accepted.runs, reverse=True)
    assert await ids(reader, hand, query=ulid_text(plain)) == [plain]
    assert await ids(reader, hand, query=ulid_text(plain).lower()) == [plain]
    assert await ids(reader, hand, query="key-1") == [keyed]
    assert await ids(reader, hand, query="order-1") == newest_first
    assert await ids(reader, hand, query=ulid_text(accepted.id)) == newest_first
    (once,) = await ids(reader, hand, query="7")
    assert (await reader.one(hand.tenant, once)).idempotency_key == "7"
    assert await ids(reader, hand, query="order-1", workflow="once") == [once]
    assert await ids(reader, hand, query="order-1", states=frozenset({"failed"})) == []
    assert await ids(reader, hand, query="order-2") == []


async def test_by_tags_all_of_them(reader: RunReader, hand: Hand) -> None:
    both = await hand.start("work", tags=("red", "blue"))
    red = await hand.start("work", tags=("red",))
    assert await ids(reader, hand, tags=("red",)) == [red, both]
    assert await ids(reader, hand, tags=("blue", "red")) == [both]
    assert await ids(reader, hand, tags=("re",)) == []


async def test_by_time_from_a_runs_own_creation_on_and_before_it(reader: RunReader, hand: Hand) -> None:
    runs = [await hand.start("work") for _ in range(3)]
    created = [(await reader.one(hand.tenant, run)).created_ms for run in runs]
    since = await ids(reader, hand, since_ms=created[1])
    assert [run for run in runs if run in since] == [
        run for run, at in zip(runs, created, strict=True) if at >= created[1]
    ]
    until = await ids(reader, hand, until_ms=created[1])
    assert set(until) | set(since) == set(runs)
    assert not set(until) & set(since)
    assert await ids(reader, hand, since_ms=created[2] + 60_000) == []
    assert await ids(reader, hand, since_ms=-1, until_ms=10**15) == list(reversed(runs))


async def test_another_tenants_runs_are_not_listed(
    reader: RunReader, hand: Hand, database: Database, sealer: Sealer
) -> None:
    mine = await hand.start("work", idempotency_key="same")
    async with database.transaction() as connection:
        other = await connection.fetchval("select rt.create_tenant('other', 'Other')")
        await create_project(connection, sealer, other, "default", ProjectChange(name=""))
    async with playing(database, other) as theirs:
        await theirs.declare({"name": "work"})
        run = await theirs.start("work", idempotency_key="same")
        for wanted in ({}, {"query": "same"}, {"states": frozenset({"queued"})}, {"workflow": "work"}):
            assert await ids(reader, hand, **wanted) == [mine]
            assert await ids(reader, theirs, **wanted) == [run]
        assert await ids(reader, hand, query=ulid_text(run)) == []


@pytest.fixture
async def history(hand: Hand, database: Database) -> int:
    """Thirty thousand ended runs."""
    count = 30_000
    async with database.connection() as connection:
        wf = await connection.fetchval("select id from rt.workflows where tenant = $1 and name = 'work'", hand.tenant)
        await connection.execute(HISTORY, hand.tenant, wf, count)
        for table in ("runs", "ends"):
            await connection.execute(f"vacuum analyze t_{hand.tenant}.{table}")
    return count


async def test_a_search_for_rare_runs_pauses_and_goes_on(reader: RunReader, hand: Hand, history: int) -> None:
    page = await reader.list(hand.tenant, RunFilter(tags=("rare",)), after=None, limit=1)
    assert page.runs == ()
    assert page.next is not None
    assert len(await ids(reader, hand, tags=("rare",))) == 2
    failed = await reader.list(hand.tenant, RunFilter(states=frozenset({"failed"})), after=None, limit=10)
    assert len(failed.runs) == 10
    until_ms = 1_000_000_000_000 + 11_000
    early = await every_run(reader, hand.tenant, RunFilter(until_ms=until_ms), limit=4)
    assert [ulid_unix_ms(run.id) for run in early] == [1_000_000_000_000 + n * 1_000 for n in range(10, 0, -1)]


async def test_no_list_reads_more_than_its_window_of_a_long_history(
    hand: Hand, database: Database, history: int
) -> None:
    zero = UUID(int=0)
    window = 51
    sources: dict[str, list[Any]] = {
        "newest": [hand.tenant],
        "newest_of_workflows": [[1]],
        "newest_in_states": [hand.tenant, [], ["failed", "timed_out"]],
        "newest_named": [hand.tenant, zero, [1], ["s:x"], "x"],
    }
    async with snapshot(database) as connection:
        for name, arguments in sources.items():
            statement = tenant_query("run_search", name, hand.tenant)
            assert await blocks_read(connection, statement, zero, END, window, *arguments) < 3 * window, name
        newest = await connection.fetch(
            tenant_query("run_search", "newest", hand.tenant), zero, END, window, hand.tenant
        )
        some = [row["id"] for row in newest]
        filters = [None] * 5
        statement = tenant_query("run_search", "matching", hand.tenant)
        assert await blocks_read(connection, statement, hand.tenant, some, *filters, window) < 15 * window
        statement = tenant_query("runs", "runs", hand.tenant)
        assert await blocks_read(connection, statement, hand.tenant, some) < 15 * window


async def blocks_read(connection: asyncpg.Connection, statement: str, *arguments: Any) -> int:
    """How many blocks of tables and indexes the statement looks at. The history has thousands."""
    text = await connection.fetchval(f"explain (analyze, buffers, format json) {statement}", *arguments)
    plan = json.loads(text)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
