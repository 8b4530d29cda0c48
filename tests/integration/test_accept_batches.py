"""Requests of events that come at the same time are one transaction, each whole, and no one's fault is another's."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.errors import InvalidInput, Unavailable
from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.group_commit import OVERLOADED
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand, neighbour
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows
from tests.support.locks import held_up
from tests.support.overload import until_refused

__all__ = ["database", "postgres_url", "recorder", "rows"]

IDS = UlidFactory(SystemClock(), random.Random())
ON_A = {"name": "work", "triggers": [{"event": "a"}]}


def make_acceptor(database: Database, recorder: Recorder) -> EventAcceptor:
    return EventAcceptor(database, DefinitionsCache(None), Hints(recorder), IDS)


@pytest.fixture
def acceptor(hand: Hand, recorder: Recorder) -> EventAcceptor:
    return make_acceptor(hand.database, recorder)


def event(name: str = "a", data: str = "{}", **fields: Any) -> Incoming:
    return Incoming(name=name, data=data, **fields)


async def together(acceptor: EventAcceptor, tenant: int, *requests: Sequence[Incoming]) -> list[Any]:
    """What became of requests that come at once: the answers, or the error, of each."""
    return await asyncio.gather(*(acceptor.accept(tenant, each) for each in requests), return_exceptions=True)


async def submitted(acceptor: EventAcceptor, tenant: int, *events: Incoming, id: UUID, again: bool = False) -> Any:
    """The end of a request under an id of its sender's."""
    ended: asyncio.Future[list[Accepted] | Exception] = asyncio.get_running_loop().create_future()
    acceptor.submit(tenant, events, ended.set_result, first_id=id, again=again)
    return await ended


async def waiting(hand: Hand, key: str) -> UUID:
    run = await hand.start("waits", f'{{"k":"{key}"}}')
    await hand.answer(
        run, WaitForEvent(id="w", name="w", event="go", timeout_ms=DAY_MS, condition="async.data.k == event.data.k")
    )
    return run


async def test_requests_are_one_transaction_and_each_has_its_own_answer(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, recorder: Recorder
) -> None:
    await hand.declare(ON_A)
    requests = [[event(data=f'{{"n":{n}}}') for n in range(size)] for size in (1, 3, 1, 2)]
    ends = await together(acceptor, hand.tenant, *requests)
    assert [len(end) for end in ends] == [1, 3, 1, 2]
    assert await rows.value("select count(distinct xmin::text) from rt.events") == 1
    for request, end in zip(requests, ends, strict=True):
        for sent, accepted in zip(request, end, strict=True):
            assert await rows.value("select data from rt.events where id = $1", accepted.id) == sent.data
            assert await rows.value("select event from rt.runs where id = $1", accepted.runs[0]) == accepted.id
    assert sorted(recorder.ready) == sorted(run for end in ends for accepted in end for run in accepted.runs)


async def test_one_that_cannot_be_stored_harms_no_other(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    bad = [event(), event(ts=2**63)]
    ends = await together(acceptor, hand.tenant, *([event()] for _ in range(11)), bad, [event()])
    assert isinstance(ends.pop(11), asyncpg.DataError)
    assert all(isinstance(end, list) for end in ends)
    assert await rows.value("select count(*) from rt.events") == 12


async def test_doubles_of_different_requests_are_told_apart(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    ends = await together(acceptor, hand.tenant, *([event(event_id=f"e{n % 2}"), event()] for n in range(6)))
    assert [end[0].duplicate for end in ends] == [False] * 2 + [True] * 4
    assert [end[0].id for end in ends[2:]] == [end[0].id for end in ends[:2]] * 2
    assert [end[1].duplicate for end in ends] == [False] * 6
    assert await rows.value("select count(*) from rt.live") == 8


async def test_c4_a_batch_whose_answer_was_lost_happened_once(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    await hand.declare(ON_A)
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        async with slow_commits(hand.database, f"t_{hand.tenant}.events") as stopped:
            requests = [[event(event_id=f"e{n}"), event()] for n in range(5)]
            accepting = asyncio.create_task(together(make_acceptor(pool, recorder), hand.tenant, *requests))
            await stopped()
            cut()
            async with hand.database.connection() as watcher:
                await held_up(watcher, 2)  # the lost one, and the same once more
            assert not accepting.done()
        ends = await accepting
        await pool.close()
    assert not [accepted for end in ends for accepted in end if accepted.duplicate]
    assert await rows.value("select count(*) from rt.events") == 10
    assert await rows.value("select count(*) from rt.live") == 10


async def test_asked_for_again_under_its_id_it_is_the_same_request(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    await hand.declare(ON_A)
    one, another = make_acceptor(hand.database, recorder), make_acceptor(hand.database, recorder)
    id, events = IDS.block(3), (event(event_id="x"), event(), event(data='{"n":2}'))
    first, twin = await asyncio.gather(*(submitted(one, hand.tenant, *events, id=id) for _ in range(2)))
    assert first == twin
    assert [accepted.id.int for accepted in first] == [id.int, id.int + 1, id.int + 2]
    for again in (True, False):
        assert await submitted(another, hand.tenant, *events, id=id, again=again) == first
    (other,) = await submitted(another, hand.tenant, event(event_id="x"), id=IDS.new(), again=True)
    assert (other.duplicate, other.id) == (True, id)
    assert await rows.value("select count(*) from rt.events") == 3
    assert await rows.value("select count(*) from rt.live") == 3


async def test_f7_an_id_that_is_in_anothers_block_is_refused_and_nothing_of_the_request_is_stored(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    acceptor = make_acceptor(hand.database, recorder)
    id = IDS.block(10)

    def at(place: int) -> UUID:
        return UUID(int=id.int + place)

    first = await submitted(acceptor, hand.tenant, *(event(f"o{n}") for n in range(10)), id=id)
    for again in (False, True):
        for events, place in (
            ((event("p"), event("p")), 3),
            ((event("o8"), event("o9"), event("late")), 8),  # those that are there are the same, one is not there
            ((event("o0", '{"n":1}'),), 0),
            ((event("o0", event_id="k"),), 1),
        ):
            refused = await submitted(acceptor, hand.tenant, *events, id=at(place), again=again)
            assert isinstance(refused, InvalidInput)
            assert "is taken" in str(refused)
    assert await rows.value("select count(*) from rt.events") == 10
    assert await rows.value("select count(*) from rt.event_ids") == 0
    both = await asyncio.gather(
        submitted(acceptor, hand.tenant, *(event(f"o{n}") for n in range(10)), id=id),
        submitted(acceptor, hand.tenant, event("p"), event("p"), id=at(3)),
        submitted(acceptor, hand.tenant, event("q"), id=IDS.new()),
    )
    assert both[0] == first
    assert isinstance(both[1], InvalidInput)
    assert [accepted.name for accepted in both[2]] == ["q"]


async def test_f7_two_requests_under_one_id_at_the_same_time_are_not_answered_alike(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    acceptor, id = make_acceptor(hand.database, recorder), IDS.new()
    ends = await asyncio.gather(*(submitted(acceptor, hand.tenant, event(name), id=id) for name in ("a", "b")))
    assert [type(end) for end in ends] == [list, InvalidInput]
    assert [row["name"] for row in await rows.rows("select name from rt.events")] == ["a"]


async def test_events_that_resume_and_cancel_do_so_at_once_in_the_order_of_the_requests(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "waits", "cancel_on": [{"event": "stop", "match": "data.k"}]})
    runs = {key: await waiting(hand, key) for key in "abcdef"}
    ends = await together(
        acceptor,
        hand.tenant,
        *([event("go", f'{{"k":"{key}"}}')] for key in "abc"),
        [event("go", '{"k":"a"}')],  # a second one for the same wait
        [event("stop", '{"k":"b"}')],  # which was resumed by the one before
        [event("stop", '{"k":"d"}'), event("go", '{"k":"d"}')],
        [event("go", '{"k":"e"}'), event("stop", '{"k":"e"}')],
    )
    found = [[(accepted.resumed, accepted.cancelled) for accepted in end] for end in ends]
    assert found == [[(1, 0)], [(1, 0)], [(1, 0)], [(0, 0)], [(0, 1)], [(0, 1), (0, 0)], [(1, 0), (0, 1)]]
    statuses = {key: await rows.status(run) for key, run in runs.items()}
    ended = {key for key, status in statuses.items() if status is Status.CANCELLED}
    assert ended == set("bde")
    assert {key for key, status in statuses.items() if status is Status.QUEUED} == set("ac")
    assert statuses["f"] is Status.WAITING
    resumed = await rows.rows(
        "select run, event, output::json #>> '{data,k}' as k from rt.steps where kind = 'e' and status = 'c'"
    )
    assert {row["run"]: row["k"] for row in resumed} == {runs[key]: key for key in "abce"}
    assert {row["event"] for row in resumed} == {ends[place][0].id for place in (0, 1, 2, 6)}


async def test_two_waits_of_one_run_are_had_by_two_events_of_a_batch(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    run = await hand.start("work")
    for step in ("one", "two"):
        await hand.answer(run, WaitForEvent(id=step, name=step, event=step, timeout_ms=DAY_MS))
        if step == "one":
            await rows.rows("update rt.live set st = 'q', qk = rt.now() where id = $1 returning id", run)
    ends = await together(acceptor, hand.tenant, [event("one")], [event("two")])
    assert [[accepted.resumed for accepted in end] for end in ends] == [[1], [1]]
    assert await rows.value("select mail from rt.live where id = $1", run) == 2


async def test_c11_a_request_that_waits_for_somebody_holds_up_no_other_of_its_tenant(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    async with hand.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(
            queries("engine")["begin_accept"], 2_000, hand.tenant, ["u"], ["X"], [IDS.new()], [IDS.new()], []
        )
        stuck = asyncio.create_task(together(acceptor, hand.tenant, [event(event_id="X")]))
        await asyncio.sleep(0)
        began = time.monotonic()
        ends = await together(acceptor, hand.tenant, *([event(event_id=f"free{n}")] for n in range(20)))
        took_s = time.monotonic() - began
        assert [end for end in ends if not isinstance(end, list)] == []
        assert not stuck.done()
        await transaction.rollback()
        (((accepted,),),) = await asyncio.gather(stuck)
    assert not accepted.duplicate
    assert took_s < 2


async def test_p5_a_tenant_whose_requests_wait_for_long_is_told_to_come_again(
    hand: Hand, acceptor: EventAcceptor, sealer: Sealer
) -> None:
    async with neighbour(hand, sealer) as other, hand.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"lock table t_{hand.tenant}.events in access exclusive mode")
        waiting = [asyncio.create_task(together(acceptor, hand.tenant, [event()])) for _ in range(5)]
        async with hand.database.connection() as watcher:
            await held_up(watcher, 4)  # as many lanes as there are: one waits behind them
        refused, late = await until_refused(lambda: together(acceptor, hand.tenant, [event()]))
        assert isinstance(refused, Unavailable)
        assert refused.reason == OVERLOADED
        async with asyncio.timeout(30):
            (theirs,) = await together(acceptor, other.tenant, [event()])
        assert len(theirs) == 1
        await transaction.rollback()
        ends = [end for (end,) in await asyncio.gather(*waiting)]
        await asyncio.gather(*late)
    assert all(isinstance(end, list) for end in ends)
