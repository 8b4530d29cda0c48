"""Starting runs over the API's way: idempotency, refusals, delays, and starts whose answer is lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from services.core.domain.errors import Conflict, NotFound
from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.engine.start_request import Started, StartRequest
from services.core.engine.start_run import RunStarter
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder, recorder, rows
from tests.support.locks import held_up

__all__ = ["database", "postgres_url", "recorder", "rows"]


def make_starter(database: Database, recorder: Recorder) -> RunStarter:
    return RunStarter(database, DefinitionsCache(None), Hints(recorder), UlidFactory(SystemClock(), random.Random()))


@pytest.fixture
def starter(hand: Hand, recorder: Recorder) -> RunStarter:
    return make_starter(hand.database, recorder)


def request(hand: Hand, **fields: Any) -> StartRequest:
    return StartRequest(**{"tenant": hand.tenant, "project": "default", "workflow": "work", **fields})


async def test_a_start_is_queued_hinted_and_keeps_its_data_as_sent(
    hand: Hand, rows: LiveRows, starter: RunStarter, recorder: Recorder
) -> None:
    data = '{"b": 1.0, "a": "\\u0000"}'
    started = await starter.start(request(hand, data=data, tags=("x",), test=True))
    assert started.is_new
    assert recorder.ready == [started.run]
    run = await rows.row("select event_name, event_data, source, test, tags from rt.runs where id = $1", started.run)
    assert run is not None
    assert tuple(run) == ("runr/api.start", data, "api", True, '["x"]')
    assert await rows.status(started.run) is Status.QUEUED


async def test_c10_fifty_starts_with_one_key_are_one_run(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    starters = [make_starter(hand.database, recorder) for _ in range(10)]
    starts = [starters[n % 10].start(request(hand, idempotency_key="k")) for n in range(50)]
    answers = await asyncio.gather(*starts)
    assert len({answer.run for answer in answers}) == 1
    assert sum(answer.is_new for answer in answers) == 1
    assert await rows.value("select count(*) from rt.runs") == 1
    assert recorder.ready == [answers[0].run]


async def test_case_13_a_key_answers_its_run_even_when_that_has_ended(
    hand: Hand, rows: LiveRows, starter: RunStarter
) -> None:
    first = await starter.start(request(hand, idempotency_key="k"))
    await hand.cancel(first.run)
    assert await starter.start(request(hand, idempotency_key="k")) == Started(first.run, False)
    assert await rows.status(first.run) is Status.CANCELLED
    await hand.declare({"name": "work", "triggers": [{"event": "a"}], "idempotency": "event.data.k"})
    by_event = await hand.send("a", '{"k":"k"}')
    assert by_event.runs == (first.run,), "the definition's expression shares the key space"
    await rows.rows("delete from rt.idem where run = $1 returning run", first.run)
    assert (await starter.start(request(hand, idempotency_key="k"))).is_new


async def test_keys_belong_to_their_workflow(hand: Hand, starter: RunStarter) -> None:
    await hand.declare({"name": "work"}, {"name": "other"})
    one = await starter.start(request(hand, idempotency_key="k"))
    other = await starter.start(request(hand, idempotency_key="k", workflow="other"))
    assert other.is_new
    assert one.run != other.run


async def test_what_cannot_be_started_says_why_and_leaves_nothing(
    hand: Hand, rows: LiveRows, starter: RunStarter
) -> None:
    with pytest.raises(NotFound, match="no project 'nope'"):
        await starter.start(request(hand, project="nope"))
    with pytest.raises(NotFound, match="no workflow 'nope'"):
        await starter.start(request(hand, workflow="nope"))
    with pytest.raises(NotFound):
        await starter.start(request(hand, tenant=10**6))
    async with rows.database.transaction() as connection:
        await connection.execute("update rt.workflows set is_active = false")
        await connection.execute(queries("workflows")["bump"], hand.tenant)
    with pytest.raises(Conflict, match="paused"):
        await starter.start(request(hand, idempotency_key="k"))
    await hand.declare({"name": "other"})
    with pytest.raises(Conflict, match="archived"):
        await starter.start(request(hand, idempotency_key="k"))
    assert await rows.value("select count(*) from rt.runs") == 0
    assert await rows.value("select count(*) from rt.idem") == 0


async def test_a_change_of_definitions_holds_for_the_next_start(
    hand: Hand, rows: LiveRows, starter: RunStarter
) -> None:
    await starter.start(request(hand))
    await hand.declare({"name": "work", "retries": 7})
    started = await starter.start(request(hand))
    assert await rows.value("select max_att from rt.live where id = $1", started.run) == 8


@pytest.mark.parametrize("when", [{"delay_ms": 3_600_000}, {"at_ms": 4_102_444_800_000}], ids=["delay", "at"])
async def test_c15_a_later_start_waits_and_is_not_hinted(
    hand: Hand, rows: LiveRows, starter: RunStarter, recorder: Recorder, when: dict[str, int]
) -> None:
    started = await starter.start(request(hand, **when))
    assert await rows.status(started.run) is Status.DELAYED
    assert recorder.ready == []
    await hand.fire(started.run)
    assert await rows.status(started.run) is Status.QUEUED


async def test_c4_a_start_whose_answer_was_lost_happened_once(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        async with slow_commits(hand.database, f"t_{hand.tenant}.runs") as stopped:
            starting = asyncio.create_task(make_starter(pool, recorder).start(request(hand)))
            await stopped()
            cut()
            async with hand.database.connection() as watcher:
                await held_up(watcher, 2)  # the lost one, and the same once more
            assert not starting.done()
        started = await starting
        await pool.close()
    assert started.is_new
    assert await rows.value("select count(*) from rt.live") == 1
    assert await rows.status(started.run) is Status.QUEUED
