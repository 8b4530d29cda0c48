"""Accepting events against a real Postgres: what an event does, and in which order."""

from __future__ import annotations

import json

import pytest

from services.core.domain.op import Sleep
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries
from tests.support.acceptor import ON_A, acceptor, effects, event, keys, waiting
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows

__all__ = ["acceptor", "database", "postgres_url", "recorder", "rows"]


async def test_of_one_event_the_order_is_cancel_resume_start(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(
        {"name": "work", "triggers": [{"event": "go"}], "cancel_on": [{"event": "go", "match": "data.k"}]}
    )
    cancelled = await waiting(hand, "go", '{"k":1}')
    resumed = await waiting(hand, "go", '{"k":2}')
    (answer,) = await acceptor.accept(hand.tenant, [event("go", {"k": 1})])
    assert (answer.cancelled, answer.resumed, len(answer.runs)) == (1, 1, 1)
    assert await rows.status(cancelled) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.steps where run = $1 and status = 'c'", cancelled) == 0
    assert await rows.status(resumed) is Status.QUEUED
    assert await rows.status(answer.runs[0]) is Status.QUEUED, "an event does not cancel the run that it starts"


async def test_a_resumed_step_has_the_event_as_it_was_sent(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    run = await waiting(hand, "paid")
    data = '{"b": 1.0, "a": 12345678901234567890, "t": "\\u0000\\ud83d\\ude00"}'
    (answer,) = await acceptor.accept(hand.tenant, [Incoming(name="paid", data=data, ts=5)])
    output = await rows.value("select output from rt.steps where run = $1", run)
    assert output == f'{{"id":"{ulid_text(answer.id)}","name":"paid","data":{data},"ts":5}}'


async def test_in_one_request_the_order_is_as_given(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    run = await waiting(hand, "paid")
    first, second = await acceptor.accept(hand.tenant, [event("paid", {"n": 1}), event("paid", {"n": 2})])
    assert (first.resumed, second.resumed) == (1, 0)
    output = json.loads(await rows.value("select output from rt.steps where run = $1", run))
    assert output["data"] == {"n": 1}


@pytest.mark.parametrize("between", [0, 3])
async def test_c25_an_event_cancels_a_run_that_an_earlier_one_of_the_request_started(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, between: int
) -> None:
    cancel_on = [{"event": "stop", "match": "data.k"}]
    await hand.declare({"name": "work", "triggers": [{"event": "go"}], "cancel_on": cancel_on})
    request = [event("stop", {"k": 1}), event("go", {"k": 1}), event("go", {"k": 2})]
    request += [event("other")] * between + [event("stop", {"k": 1}), event("go", {"k": 1})]
    answers = await acceptor.accept(hand.tenant, request)
    assert [answer.cancelled for answer in answers] == [0, 0, 0] + [0] * between + [1, 0]
    assert await rows.status(answers[1].runs[0]) is Status.CANCELLED
    assert await rows.status(answers[2].runs[0]) is Status.QUEUED
    assert await rows.status(answers[-1].runs[0]) is Status.QUEUED


async def test_an_event_of_a_request_that_cancels_leaves_nothing_for_a_later_one_to_resume(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    run = await waiting(hand, "paid")
    answers = await acceptor.accept(hand.tenant, [event("stop"), event("paid"), event("stop")])
    assert [(answer.cancelled, answer.resumed) for answer in answers] == [(1, 0), (0, 0), (0, 0)]
    assert await rows.status(run) is Status.CANCELLED


async def test_paused_and_archived_workflows_are_skipped_and_named(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A, {"name": "gone", "triggers": [{"event": "a"}]})
    await hand.declare(ON_A)
    async with rows.database.transaction() as connection:
        await connection.execute("update rt.workflows set is_active = false where name = 'work'")
        await connection.execute(queries("workflows")["bump"], hand.tenant)
    (answer,) = await acceptor.accept(hand.tenant, [event("a")])
    assert answer.runs == ()
    skipped = {(each["workflow"], each["reason"]) for each in (await effects(rows, answer))["skipped"]}
    assert skipped == {("work", "paused"), ("gone", "archived")}


async def test_a_workflow_starts_once_for_an_event_however_many_triggers_hold(
    hand: Hand, acceptor: EventAcceptor
) -> None:
    await hand.declare(
        {
            "name": "work",
            "triggers": [{"event": "a", "if": "event.data.n > 1"}, {"event": "a", "if": "event.data.n > 2"}],
        }
    )
    counts = [len((await acceptor.accept(hand.tenant, [event("a", {"n": n})]))[0].runs) for n in (1, 2, 3)]
    assert counts == [0, 1, 1]


async def test_c1_a_cancelled_holder_is_told_and_nobody_else(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, recorder: Recorder
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    leased, idle = await hand.start("work"), await hand.start("work")
    owner = await rows.owner()
    await rows.claim(owner, [leased])
    (answer,) = await acceptor.accept(hand.tenant, [event("stop")])
    assert answer.cancelled == 2
    assert recorder.cancelled == {owner: [leased]}
    assert await rows.status(idle) is Status.CANCELLED


@pytest.mark.parametrize(("window", "cancelled"), [(0, 0), (60_000, 1), (None, 1)])
async def test_a_cancel_on_holds_only_within_its_window(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, window: int | None, cancelled: int
) -> None:
    run = await hand.start("work")
    wait = rows.wait("x", run=run, event="stop", delay_ms=window, **keys("stop", None))
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["open_waits"], *[[value] for value in wait])
    (answer,) = await acceptor.accept(hand.tenant, [event("stop")])
    assert answer.cancelled == cancelled


async def test_a_sleeping_run_is_cancelled_with_all_its_timers(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop", "timeout": "1d"}]})
    run = await hand.start("work")
    await hand.answer(run, Sleep(id="z", name="z", for_ms=DAY_MS))
    await acceptor.accept(hand.tenant, [event("stop")])
    assert await rows.status(run) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0


async def test_another_tenants_waits_and_triggers_are_untouched(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    run = await waiting(hand, "a")
    other = await rows.value("select rt.create_tenant('other', '')")
    (answer,) = await acceptor.accept(other, [event("a", id="X")])
    assert (answer.runs, answer.resumed) == ((), 0)
    assert not (await acceptor.accept(hand.tenant, [event("a", id="X")]))[0].duplicate
    assert await rows.status(run) is Status.QUEUED
