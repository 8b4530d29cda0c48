"""Platform events of ended runs: only where something listens, exactly once, and never in a circle."""

from __future__ import annotations

import json

import pytest

from services.core.domain.event import RUN_EVENTS
from services.core.domain.matching import name_hash
from services.core.domain.op import RunCompleted, WaitForEvent
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.run_events import RunEventMarks
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.database import Database
from tests.support.hand import Hand


@pytest.fixture
def marks(database: Database) -> RunEventMarks:
    import random

    ids = UlidFactory(SystemClock(), random.Random(1))
    acceptor = EventAcceptor(database, DefinitionsCache(None), Hints(NullPublisher()), ids)
    return RunEventMarks(database, acceptor)


async def test_hashes_in_sql_are_those_of_the_names(database: Database) -> None:
    async with database.connection() as connection:
        for name in RUN_EVENTS:
            found = await connection.fetchval("select rt.run_event_hash($1)", name.removeprefix("runr/run."))
            assert found == name_hash(name)


async def test_nothing_is_written_where_nothing_listens(hand: Hand, marks: RunEventMarks) -> None:
    await hand.declare({"name": "quiet"})
    run = await hand.start("quiet")
    await hand.answer(run, RunCompleted(output="1"))
    assert await marks.sweep(0) == 0


@pytest.mark.parametrize("heard", ["completed", "cancelled"])
async def test_only_the_ends_that_somebody_hears_are_stored(
    hand: Hand, marks: RunEventMarks, database: Database, heard: str
) -> None:
    listener = {"name": "listener", "description": 'no "event":"runr/run.failed" here', "retries": 0}
    await hand.declare({"name": "work"}, {**listener, "triggers": [{"event": f"runr/run.{heard}"}]})
    run, other = await hand.start("work"), await hand.start("work")
    await hand.answer(run, RunCompleted(output="1"))
    await hand.cancel(other)
    assert await marks.sweep(0) == 1
    async with database.connection() as connection:
        names = [row["name"] for row in await connection.fetch("select name from rt.events")]
        assert names == [f"runr/run.{heard}"]
    await hand.declare({"name": "work"})
    await hand.cancel(await hand.start("work"))
    await hand.answer(await hand.start("work"), RunCompleted(output="1"))
    assert await marks.sweep(0) == 0, "nobody hears it any more"


async def test_an_end_starts_who_listens_once_and_never_in_a_circle(
    hand: Hand, marks: RunEventMarks, database: Database
) -> None:
    listens = [{"event": "runr/run.completed"}]
    await hand.declare({"name": "work"}, {"name": "audit", "triggers": listens}, {"name": "echo", "triggers": listens})
    run = await hand.start("work")
    await hand.answer(run, RunCompleted(output='{"ok":true}'))
    assert await marks.sweep(0) == 1
    assert await marks.sweep(0) == 0

    async with database.connection() as connection:
        event = await connection.fetchrow("select * from rt.events where run = $1", run)
        started = await connection.fetch(
            "select r.id, w.name from rt.runs r join rt.workflows w on w.id = r.wf where r.event = $1", event["id"]
        )
    assert (event["name"], event["source"]) == ("runr/run.completed", "platform")
    data = json.loads(event["data"])
    assert (data["run_id"], data["workflow"], data["output"]) == (ulid_text(run), "work", {"ok": True})
    assert {row["name"] for row in started} == {"audit", "echo"}

    # The end of `audit` reaches `echo`, but neither itself nor `work`; the chain ends there.
    rounds = 0
    while True:
        async with database.connection() as connection:
            active = [row["id"] for row in await connection.fetch("select id from rt.live")]
        if not active:
            break
        rounds += 1
        assert rounds < 10
        for run_id in active:
            await hand.answer(run_id, RunCompleted(output="null"))
        await marks.sweep(0)
    async with database.connection() as connection:
        names = [
            row["name"]
            for row in await connection.fetch("select w.name from rt.runs r join rt.workflows w on w.id = r.wf")
        ]
    assert sorted(names) == ["audit", "audit", "echo", "echo", "work"]


async def test_a_wait_hears_the_end_of_a_run(hand: Hand, marks: RunEventMarks, database: Database) -> None:
    await hand.declare({"name": "work"}, {"name": "watch"})
    watch = await hand.start("watch")
    await hand.answer(watch, WaitForEvent(id="w", name="w", event="runr/run.completed"))
    run = await hand.start("work")
    await hand.answer(run, RunCompleted(output="7"))
    assert await marks.sweep(0) == 1
    async with database.connection() as connection:
        output = await connection.fetchval("select output from rt.steps where run = $1 and sid = 'w'", watch)
    assert json.loads(output)["data"]["output"] == 7


@pytest.mark.parametrize("levels", [126, 127, 128])
async def test_an_output_as_deep_as_allowed_does_not_stop_the_events_of_others(
    hand: Hand, marks: RunEventMarks, database: Database, levels: int
) -> None:
    await hand.declare({"name": "work"}, {"name": "audit", "triggers": [{"event": "runr/run.completed"}]})
    for output in ("[" * levels + "]" * levels, "1"):
        await hand.answer(await hand.start("work"), RunCompleted(output=output))
    assert await marks.sweep(0) == 2
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from rt.mark where kind = 'run_event'") == 0
        assert await connection.fetchval("select count(*) from rt.events where name = 'runr/run.completed'") == 2


@pytest.mark.parametrize("data", ['{"lineage":5}', '{"lineage":[1,null,"x"]}', "{}"])
async def test_data_that_a_replay_replaced_is_not_trusted(
    hand: Hand, marks: RunEventMarks, database: Database, data: str
) -> None:
    await hand.declare({"name": "audit", "triggers": [{"event": "runr/run.completed"}]}, {"name": "work"})
    run = await hand.start("work")
    async with database.connection() as connection:
        await connection.execute(
            "update rt.runs set event_name = 'runr/run.completed', event_data = $2 where id = $1", run, data
        )
    await hand.answer(run, RunCompleted(output="1"))
    assert await marks.sweep(0) == 1
