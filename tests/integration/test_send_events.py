"""`step.send_event`: durable with its step, carried out afterwards, once."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from uuid import UUID

import pytest

from services.core.domain.op import EventToSend, SendEvent, StepCompleted
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.send_events import SendEventMarks
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.store.database import Database
from tests.support.engine import ScriptedFunctions, database, executing, postgres_url, slow_commits
from tests.support.fake_function import completed, replaying
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

SENDS_X = {"op": "send_event", "id": "s", "events": [{"name": "sent", "id": "X"}]}
LISTENER = {"name": "listener", "triggers": [{"event": "sent"}]}


def make_marks(database: Database) -> SendEventMarks:
    ids = UlidFactory(SystemClock(), random.Random())
    return SendEventMarks(database, EventAcceptor(database, DefinitionsCache(None), Hints(NullPublisher()), ids))


@pytest.fixture
def marks(database: Database) -> SendEventMarks:
    return make_marks(database)


async def sending(hand: Hand, *events: EventToSend, sid: str = "s") -> UUID:
    """A run whose step has sent these events; the marks are not carried out yet."""
    run = await hand.start("work")
    assert await hand.answer(run, SendEvent(id=sid, name=sid, events=events)) is Status.RUNNING
    return run


async def sent(rows: LiveRows, run: UUID) -> list[str] | None:
    """What the run's step has answered."""
    output = await rows.value("select output from rt.steps where run = $1 and sid = 's'", run)
    return None if output is None else list(json.loads(output)["ids"])


async def waits_for_a_transaction(rows: LiveRows) -> bool:
    return bool(await rows.value("select count(*) from pg_locks where locktype = 'transactionid' and not granted"))


async def all_is_done(rows: LiveRows) -> bool:
    return not await rows.value("select count(*) from rt.live") and not await left(rows)


def told(functions: ScriptedFunctions) -> list[tuple[str, ...]]:
    """The ids in the step's output as requests had them."""
    steps = [request["steps"]["s"] for request in functions.requests if "s" in request["steps"]]
    return [tuple(step["output"]["ids"]) for step in steps]


async def left(rows: LiveRows) -> int:
    return int(await rows.value("select count(*) from rt.mark where kind = 'send_event'"))


async def test_c13_the_step_names_the_events_that_are_then_accepted(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    await hand.declare({"name": "work"}, LISTENER)
    run = await sending(hand, EventToSend(name="sent", data='{"n":1}'), EventToSend(name="sent", ts=5))
    ids = json.loads(await rows.value("select output from rt.steps where run = $1", run))["ids"]
    assert await rows.value("select count(*) from rt.events") == 0, "not before the commit of the step"
    assert await marks.sweep(0) == 1
    stored = await rows.rows("select id, source, run, data, ts from rt.events order by id")
    assert [row["id"] for row in stored] == [ulid_uuid(each) for each in ids]
    assert {(row["source"], row["run"]) for row in stored} == {("workflow", run)}
    assert stored[1]["ts"] == 5
    assert await left(rows) == 0
    assert await rows.value("select count(*) from rt.runs where event_name = 'sent'") == 2


async def test_c13_marks_carried_out_twice_or_by_several_at_once_send_once(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    await hand.declare({"name": "work"}, LISTENER)
    for number in range(5):
        await sending(hand, *[EventToSend(name="sent", data=f'{{"n":{number}}}') for _ in range(3)])
    copies = await rows.rows("select tenant, target, kind, body from rt.mark where kind = 'send_event'")
    await asyncio.gather(*(make_marks(hand.database).sweep(0) for _ in range(4)))
    for copy in copies:
        await rows.rows("insert into rt.mark (tenant, target, kind, body) values ($1, $2, $3, $4) returning id", *copy)
    await marks.sweep(0)
    assert await left(rows) == 0
    assert await rows.value("select count(*) from rt.events where name = 'sent'") == 15
    assert await rows.value("select count(*) from rt.runs where event_name = 'sent'") == 15


async def test_an_id_that_a_sender_used_before_is_not_sent_again(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    await hand.declare({"name": "work"}, LISTENER)
    before = await hand.send("sent", event_id="X")
    run = await sending(hand, EventToSend(name="sent", id="X"))
    assert await sent(rows, run) is None, "not known before the event is accepted"
    await marks.sweep(0)
    assert await sent(rows, run) == [ulid_text(before.id)]
    assert await rows.value("select count(*) from rt.runs where event_name = 'sent'") == 1


async def test_a_step_answers_the_ids_of_the_events_that_are_stored(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    """Of an id that another has used, of one that nobody has, and of one that the step itself uses twice."""
    before = await hand.send("sent", event_id="X")
    names = ("X", None, "Y", "Y", "Z")
    run = await sending(hand, *(EventToSend(name="sent", id=name) for name in names))
    size = await rows.value("select bytes from rt.live where id = $1", run)
    await marks.sweep(0)
    ids = await sent(rows, run)
    assert ids is not None
    stored = {ulid_text(row["id"]): row["event_id"] for row in await rows.rows("select id, event_id from rt.events")}
    assert [stored[id] for id in ids] == list(names)
    assert ids[0] == ulid_text(before.id)
    assert ids[2] == ids[3]
    assert size == await rows.value("select octet_length(output) from rt.steps where run = $1", run)


async def test_a_step_whose_id_another_sender_is_just_using_answers_that_event(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    run = await sending(hand, EventToSend(name="sent", id="X"))
    async with slow_commits(hand.database, "rt.event_ids") as stopped:
        other = asyncio.create_task(hand.send("sent", event_id="X"))
        await stopped()
        sweeping = asyncio.create_task(marks.sweep(0))
        await until(lambda: waits_for_a_transaction(rows))
    await sweeping
    assert await sent(rows, run) == [ulid_text((await other).id)]
    assert await rows.value("select count(*) from rt.events") == 1


async def test_the_function_gets_the_ids_of_the_stored_events(hand: Hand, rows: LiveRows) -> None:
    before = await hand.send("sent", event_id="X")
    async with executing(hand.database, {"work": replaying(SENDS_X, completed("after"))}) as (executor, functions):
        run = await hand.start("work")
        executor.hint([run])
        await until(lambda: all_is_done(rows))
    assert {*told(functions)} == {(ulid_text(before.id),)}


async def test_a_run_whose_executor_died_before_it_knew_what_it_sent_waits_for_that(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    before = await hand.send("sent", event_id="X")
    run = await sending(hand, EventToSend(name="sent", id="X"))
    await rows.rows("select from rt.live r, rt.let_go_v1(r.owner, array[r.id], array[r.epoch]) where r.id = $1", run)
    script = replaying(SENDS_X, completed("after"))
    async with executing(hand.database, {"work": script}) as (_, functions):

        async def was_claimed_and_given_back() -> bool:
            return bool(await rows.value("select epoch > 5 from rt.live where id = $1", run))

        await until(was_claimed_and_given_back)
        assert functions.requests == [], "nobody is told what is not known"
        await marks.sweep(0)
        await until(lambda: all_is_done(rows))
    assert {*told(functions)} == {(ulid_text(before.id),)}


async def test_a_replay_behind_a_step_that_does_not_know_what_it_sent_comes_again(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    run = await sending(hand, EventToSend(name="sent", id="X"))
    await hand.answer(run, StepCompleted(id="after", name="after", output="1"))
    replayer = RunReplayer(hand.database, DefinitionsCache(None), Hints(NullPublisher()), hand.ids)
    request = ReplayRequest(tenant=hand.tenant, run=run, from_step="after")
    replaying_ = asyncio.create_task(replayer.replay(request))
    await marks.sweep(0)
    assert await sent(rows, await replaying_) == await sent(rows, run)


async def test_a_step_that_sends_what_cancels_its_own_run_is_stored_and_cancels_it(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    run = await sending(hand, EventToSend(name="stop"))
    await marks.sweep(0)
    assert await rows.status(run) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.steps where run = $1 and status = 'c'", run) == 1


async def test_a_mark_that_cannot_be_carried_out_holds_up_no_other(
    hand: Hand, rows: LiveRows, marks: SendEventMarks, caplog: pytest.LogCaptureFixture
) -> None:
    for body in ("not json", '{"accept_id": "x"}'):
        for _ in range(3):
            await rows.rows(
                "insert into rt.mark (tenant, kind, body) values ($1, 'send_event', $2) returning id", rows.tenant, body
            )
    await sending(hand, EventToSend(name="sent"))
    with caplog.at_level(logging.ERROR):
        assert await marks.sweep(0, limit=2) == 1
    assert "cannot be carried out" in caplog.text
    assert await left(rows) == 6, "nothing that was accepted is thrown away"
    assert await rows.value("select count(*) from rt.events where name = 'sent'") == 1


async def test_a_sweep_leaves_young_marks_to_the_executor_that_wrote_them(
    hand: Hand, rows: LiveRows, marks: SendEventMarks
) -> None:
    await sending(hand, EventToSend(name="sent"))
    assert await marks.sweep(60_000) == 0
    assert await left(rows) == 1
