"""`step.send_event`: durable with its step, carried out afterwards, once."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from uuid import UUID

import pytest

from services.core.domain.op import EventToSend, SendEvent
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.send_events import SendEventMarks
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_uuid
from services.core.store.database import Database
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]

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
    await hand.send("sent", event_id="X")
    await sending(hand, EventToSend(name="sent", id="X"))
    await marks.sweep(0)
    assert await rows.value("select count(*) from rt.runs where event_name = 'sent'") == 1


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
