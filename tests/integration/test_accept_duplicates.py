"""Accepting events against a real Postgres: an event, an acceptance or a start that comes again."""

from __future__ import annotations

import asyncio
import json
import random
from uuid import uuid4

import pytest

from services.core.engine.accept_events import EventAcceptor
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.acceptor import ON_A, acceptor, effects, event, make_acceptor, waiting
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder, recorder, rows
from tests.support.locks import held_up

__all__ = ["acceptor", "database", "postgres_url", "recorder", "rows"]


async def test_case_11_dedupe_is_by_id_alone_within_the_tenant(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    requests = [
        [event("a", {"n": 1}, "X")],
        [event("a", {"n": 2}, "X")],
        [event("a", id="X"), event("b", id="X"), event("a", id="Y"), event("a", id="Y")],
        [event("a")],
        [event("a")],
    ]
    answers = [answer for request in requests for answer in await acceptor.accept(hand.tenant, request)]
    assert [answer.duplicate for answer in answers] == [False, True, True, True, False, True, False, False]
    assert {answer.id for answer in answers[:4]} == {answers[0].id}
    assert answers[3].name == "a", "the original's name"
    assert answers[5].id == answers[4].id
    assert all(answer.runs == answers[0].runs for answer in answers[:4])
    assert await rows.value("select count(*) from rt.live") == 4
    assert json.loads(await rows.value("select data from rt.events where id = $1", answers[0].id)) == {"n": 1}


async def test_c9_concurrent_duplicates_on_several_acceptors_happen_once(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    await hand.declare(ON_A)
    ids = [f"id-{number}" for number in range(20)]
    dice = random.Random(3)

    async def send() -> list[Accepted]:
        order = dice.sample(ids, len(ids))
        return await make_acceptor(hand, recorder).accept(hand.tenant, [event("a", id=each) for each in order])

    answers = [answer for request in await asyncio.gather(*(send() for _ in range(8))) for answer in request]
    assert sum(not answer.duplicate for answer in answers) == len(ids)
    assert await rows.value("select count(*) from rt.live") == len(ids)
    assert {run for answer in answers for run in answer.runs} == {
        row["id"] for row in await rows.rows("select id from rt.live")
    }
    assert sorted(recorder.ready) == sorted({run for answer in answers for run in answer.runs})


async def test_c9_a_duplicate_waits_for_the_first_and_takes_over_when_that_fails(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    async with rows.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(
            queries("engine")["begin_accept"], 2_000, hand.tenant, ["u"], ["X"], [uuid4()], [uuid4()], []
        )
        second = asyncio.create_task(acceptor.accept(hand.tenant, [event("a", id="X")]))
        await held_up(connection)
        await transaction.rollback()
    (answer,) = await second
    assert not answer.duplicate
    assert len(answer.runs) == 1


async def test_c9_the_same_acceptance_again_is_no_duplicate_and_changes_nothing(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    events, ids, accept_id = [event("a", id="X"), event("a")], [uuid4(), uuid4()], uuid4()
    first = await acceptor.accept_as(hand.tenant, events, ids, accept_id=accept_id)
    again = await acceptor.accept_as(hand.tenant, events, ids, accept_id=accept_id)
    assert first == again
    assert [answer.duplicate for answer in again] == [False, False]
    assert await rows.value("select count(*) from rt.live") == 2
    assert await rows.value("select count(*) from rt.events") == 2


@pytest.mark.parametrize("id", ["X", None], ids=["with a key", "without a key"])
async def test_c9_an_acceptance_whose_answer_was_lost_is_answered_as_the_first(
    hand: Hand, rows: LiveRows, id: str | None
) -> None:
    await hand.declare(ON_A)
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        ids = UlidFactory(SystemClock(), random.Random())
        acceptor = EventAcceptor(pool, DefinitionsCache(None), Hints(Recorder()), ids)
        async with slow_commits(hand.database, f"t_{hand.tenant}.events") as stopped:
            accepting = asyncio.create_task(acceptor.accept(hand.tenant, [event("a", id=id)]))
            await stopped()
            cut()
            async with hand.database.connection() as watcher:
                await held_up(watcher, 2)  # the lost one, and the same once more
            assert not accepting.done()
        (answer,) = await accepting
        await pool.close()
    assert not answer.duplicate
    assert len(answer.runs) == 1
    assert await rows.value("select count(*) from rt.live") == 1
    assert await rows.value("select count(*) from rt.events") == 1


async def test_keys_of_the_engines_own_cannot_be_suppressed_by_a_sender(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    for src in ("u", "q", "w", "u", "w"):
        await acceptor.accept(hand.tenant, [event("a", id="X", src=src)])
    assert await rows.value("select count(*) from rt.live") == 3


async def test_what_an_event_did_is_stored_with_it_and_answered_to_duplicates(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work"}, {"name": "listener", "triggers": [{"event": "a"}]})
    resumed = [await waiting(hand, "a"), await waiting(hand, "a")]
    (answer,) = await acceptor.accept(hand.tenant, [event("a", id="X")])
    stored = await effects(rows, answer)
    assert (stored["resumed"], stored["cancelled"], stored["runs"]) == (2, 0, [ulid_text(run) for run in answer.runs])
    assert set(stored["resumed_runs"]) == {ulid_text(run) for run in resumed}
    (again,) = await acceptor.accept(hand.tenant, [event("a", id="X")])
    assert (again.duplicate, again.id, again.runs, again.resumed) == (True, answer.id, answer.runs, 2)


async def test_case_14_idempotency_of_values_keeps_their_types(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({**ON_A, "idempotency": "event.data.k"})
    values: list[dict[str, object]] = [{"k": 1}, {"k": "1"}, {"k": True}, {"k": "true"}, {"k": None}, {}]
    answers = await acceptor.accept(hand.tenant, [event("a", value) for value in values])
    assert len({answer.runs[0] for answer in answers}) == 6
    again = await acceptor.accept(hand.tenant, [event("a", value) for value in values])
    assert [answer.runs == before.runs for answer, before in zip(again, answers, strict=True)] == [True] * 4 + [
        False
    ] * 2
    assert (await acceptor.accept(hand.tenant, [event("a", {"k": 1.0})]))[0].runs == answers[0].runs


async def test_an_idempotency_value_of_any_size_and_shape_is_a_key(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({**ON_A, "idempotency": "event.data"})
    dice = random.Random(1)
    long = {"k": "".join(chr(dice.randint(33, 0x9FFF)) for _ in range(20_000))}
    for value in (long, {"k": "a\0b"}, {"k": [1, {"z": None}]}):
        one, two = await acceptor.accept(hand.tenant, [event("a", value), event("a", value)])
        assert one.runs == two.runs
    different = {"k": long["k"][:-1] + "!"}
    assert (await acceptor.accept(hand.tenant, [event("a", different)]))[0].runs != (
        await acceptor.accept(hand.tenant, [event("a", long)])
    )[0].runs
