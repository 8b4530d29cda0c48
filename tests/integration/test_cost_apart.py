"""What one tenant's matching costs is its own: another's events and waits go on meanwhile, and so does everybody in the
process.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from uuid import UUID, uuid4

import pytest

from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine import fan_out, find_waits, look_backs, past_events
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.look_back import LookBack, Turn
from services.core.engine.look_backs import LookBacks
from services.core.engine.past_events import PastEvents
from services.core.runtime.clock import SystemClock
from services.core.runtime.fair_turns import FairTurns
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import replaying, wait_for_event
from tests.support.hand import Hand, neighbour
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.locks import held_up
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

JUDGED = "async.data.n > event.data.n"
"""A condition that no equality finds."""


async def open_waits(hand: Hand, count: int, condition: str | None = None, data: str = '{"n":1}') -> list[UUID]:
    """Runs that each wait for `paid`."""
    runs = [await hand.start("work", data) for _ in range(count)]

    async def wait(run: UUID) -> None:
        step = WaitForEvent(id="w", name="w", event="paid", condition=condition, timeout_ms=DAY_MS)
        assert await hand.answer(run, step) is Status.WAITING

    for first in range(0, count, 50):
        await asyncio.gather(*map(wait, runs[first : first + 50]))
    return runs


async def longest_hold_s(work: Callable[[], Awaitable[object]]) -> float:
    """How long at most the thread worked while nobody else on the event loop had a turn."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    beating = asyncio.create_task(beat())
    await work()
    beating.cancel()
    return longest


# ---- the event loop


async def test_judging_very_many_waits_does_not_hold_the_loop(hand: Hand) -> None:
    await open_waits(hand, 500, JUDGED, '{"n":5}')
    events = [Incoming(name="paid", data='{"n":0}') for _ in range(100)]

    async def send() -> None:
        assert {answer.resumed for answer in await hand.send_all(events)} == {0}

    assert await longest_hold_s(send) < 0.2, "50,000 conditions take several times as long"


# ---- memory


async def test_a_big_event_is_in_memory_once_however_many_waits_it_resumes(hand: Hand, rows: LiveRows) -> None:
    await open_waits(hand, 100)
    data = json.dumps({"x": "y" * 250_000})
    tracemalloc.start()
    try:
        accepted = await hand.send("paid", data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert accepted.resumed == 100
    assert peak < 10_000_000, "the event is of 250 KB"
    outputs = await rows.rows("select distinct output from rt.steps where sid = 'w'")
    assert [json.loads(row["output"])["data"] for row in outputs] == [json.loads(data)]
    assert await rows.value("select min(bytes) from rt.live") >= 250_000, "each run's state counts it"


async def test_c24_what_gives_runs_very_many_bytes_is_carried_out_in_pieces(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.core.engine.accept_batch.INLINE_BYTES", 100)
    monkeypatch.setattr(fan_out, "INLINE_BYTES", 100)
    runs = await open_waits(hand, 7)
    with monkeypatch.context() as patch:
        patch.setattr(fan_out.FanOutMarks, "carry_out", _leave_it)
        accepted = await hand.send("paid", json.dumps({"x": "y" * 30}))
    assert accepted.resumed == 7
    assert await rows.value("select count(*) from rt.mark where kind = 'fan_out'") == 4
    assert await fan_out.FanOutMarks(hand.database, Hints(NullPublisher())).sweep(0) == 4
    assert {await rows.status(run) for run in runs} == {Status.QUEUED}


async def _leave_it(*_args: object) -> int:
    return 0


async def test_waits_are_read_in_pages_and_big_conditions_by_themselves(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_waits, "PAGE", 3)
    await hand.declare({"name": "work", "cancel_on": [{"event": "paid", "if": "async.data.n > 100"}]})
    big = json.dumps({"n": 1, "x": "y" * 10_000})
    judged = await open_waits(hand, 8, JUDGED)
    plain = await open_waits(hand, 4)
    huge = await open_waits(hand, 4, "async.data.n == 2 || async.data.n == event.data", big)
    nothing, some, all_, late = await hand.send_all(
        [Incoming(name="paid", data=f'{{"n":{n}}}') for n in (0, 2, 101, 102)]
    )
    # Those without a condition are had by the first event, whatever it is.
    assert [answer.resumed for answer in (nothing, some, all_, late)] == [4, 12, 0, 0]
    assert [answer.cancelled for answer in (nothing, some, all_, late)] == [0, 0, 16, 0]
    assert {await rows.status(run) for run in (*judged, *plain, *huge)} == {Status.CANCELLED}


# ---- connections


async def test_one_tenants_requests_leave_others_a_way_to_the_database(hand: Hand, sealer: Sealer) -> None:
    pool = Database(hand.database.dsn, name="few", size=2)
    await pool.open()
    ids, turns = UlidFactory(SystemClock(), random.Random()), FairTurns(2, each=1)
    acceptor = EventAcceptor(pool, DefinitionsCache(None), Hints(NullPublisher()), ids, turns=turns)
    event = Incoming(name="a", data="{}", event_id="X")
    async with neighbour(hand, sealer) as other, hand.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(
            queries("engine")["begin_accept"], 2_000, hand.tenant, ["u"], ["X"], [uuid4()], [uuid4()], []
        )
        # All of them wait for the first with their id, each at a connection of its own if it could have one.
        stuck = [asyncio.create_task(acceptor.accept(hand.tenant, [event])) for _ in range(10)]
        await held_up(connection)
        async with asyncio.timeout(30):
            (accepted,) = await acceptor.accept(other.tenant, [event])
        assert not accepted.duplicate
        assert not any(task.done() for task in stuck)
        await transaction.rollback()
        answers = [answer for answers in await asyncio.gather(*stuck) for answer in answers]
    await pool.close()
    assert [answer.duplicate for answer in answers].count(False) == 1


# ---- looks back


async def test_c8_one_tenants_looks_back_keep_no_other_tenants_waiting(
    hand: Hand, rows: LiveRows, sealer: Sealer
) -> None:
    for _ in range(50):
        await hand.send_all([Incoming(name="paid", data='{"n":0}') for _ in range(100)])
    in_vain = wait_for_event("w", "paid", lookback="1d", timeout="1d", **{"if": "async.data.n > 1"})
    runs = [await hand.start("work") for _ in range(40)]
    async with neighbour(hand, sealer) as other:
        await other.declare({"name": "theirs"})
        await other.send("shipped")
        scripts = {"work": replaying(in_vain), "theirs": replaying(wait_for_event("w", "shipped", lookback="1d"))}
        async with executing(hand.database, scripts) as (executor, _):
            executor.hint(runs)

            async def all_wait() -> bool:
                return int(await rows.value("select count(*) from rt.wait where kind = 'e'")) == len(runs)

            await until(all_wait)
            theirs = await other.start("theirs")
            executor.hint([theirs])

            async def found() -> bool:
                query = "select exists (select from rt.steps where run = $1 and event is not null)"
                return bool(await rows.value(query, theirs))

            await until(found)
            assert await rows.value("select count(*) from rt.wait where arming") > 0, "it did not come behind them all"


async def test_looks_back_that_do_not_fit_in_are_swept_of_every_tenant_some(
    hand: Hand, rows: LiveRows, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_backs, "_SWEPT_EACH", 3)
    monkeypatch.setattr(look_backs, "_MOST_EACH", 5)
    never = asyncio.Event()

    class Busy(LookBack):
        async def arm(self, wait: UUID, turn: Turn = nullcontext) -> None:
            await never.wait()

    def step(name: str) -> WaitForEvent:
        return WaitForEvent(id="w", name="w", event=name, timeout_ms=DAY_MS, lookback_ms=DAY_MS)

    for _ in range(10):
        await hand.answer(await hand.start("work"), step("paid"))
    async with neighbour(hand, sealer) as other:
        await other.answer(await other.start("work"), step("paid"))
        looks = LookBacks(hand.database, Busy(hand.database, Hints(NullPublisher())))
        life = asyncio.create_task(looks.run())
        waits = await rows.rows("select id from rt.wait where tenant = $1 order by created_at", hand.tenant)
        assert await looks.sweep(0) == 4, "three of one tenant and the only one of the other"
        taken = [looks.offer(hand.tenant, row["id"]) for row in waits]
        assert taken == [True] * 5 + [False] * 5, "what looks already is no more, and five are enough for one tenant"
        assert looks.offer(other.tenant, uuid4())
        life.cancel()
        await looks.idle()


async def test_a_look_back_reads_what_it_goes_back_to_and_not_what_came_before(hand: Hand, rows: LiveRows) -> None:
    for _ in range(10):
        await hand.send_all([Incoming(name="paid", data="{}") for _ in range(100)])
    await rows.rows(
        # An hour of the past in each id, as if the events had come then.
        "update rt.events set received_at = received_at - interval '1 hour', "
        "id = (lpad(to_hex(rt.ms(received_at) - 3600000), 12, '0') || right(replace(id::text, '-', ''), 20))::uuid "
        "returning id"
    )
    late = await hand.send("paid")
    run = await hand.start("work")
    step = WaitForEvent(id="w", name="w", event="paid", timeout_ms=DAY_MS, lookback_ms=60_000)
    await hand.answer(run, step)
    async with hand.database.connection() as connection:
        row = await connection.fetchrow(queries("engine")["arming_wait"], await rows.value("select id from rt.wait"))
        assert row is not None
        events, found = PastEvents(row), []
        while events.more:
            found += [event["id"] for event in (await events.next_page(connection)).events]
    assert (found, events.pages) == ([late.id], 2), "one page of events with odd ids, one of all others"


async def test_a_look_back_finds_an_event_whatever_the_time_in_its_id(hand: Hand, rows: LiveRows) -> None:
    acceptor = EventAcceptor(hand.database, DefinitionsCache(None), Hints(NullPublisher()), hand.ids)
    look_back = LookBack(hand.database, Hints(NullPublisher()))
    now_ms = SystemClock().unix_ms()
    for off_ms in (-7_200_000, -50_000, -40_000, 3_000, 60_000, 7_200_000):
        event = UUID(int=(now_ms + off_ms) << 80 | random.getrandbits(80))
        name = f"paid{off_ms}"
        await acceptor.accept_as(hand.tenant, [Incoming(name=name, data="{}")], [event], accept_id=uuid4())
        run = await hand.start("work")
        step = WaitForEvent(id="w", name="w", event=name, timeout_ms=DAY_MS, lookback_ms=60_000)
        await hand.answer(run, step)
        await look_back.arm(await rows.value("select id from rt.wait where run = $1", run))
        assert await rows.value("select event from rt.steps where run = $1", run) == event, off_ms


async def test_a_page_of_big_events_is_small(hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_events, "_PAGE_BYTES", 1_000)
    ids = [(await hand.send("paid", json.dumps({"x": "y" * 300}))).id for _ in range(9)]
    await hand.answer(
        await hand.start("work"),
        WaitForEvent(id="w", name="w", event="paid", timeout_ms=DAY_MS, lookback_ms=60_000),
    )
    sizes, found = [], []
    async with hand.database.connection() as connection:
        row = await connection.fetchrow(queries("engine")["arming_wait"], await rows.value("select id from rt.wait"))
        assert row is not None
        events = PastEvents(row)
        while events.more:
            page = await events.next_page(connection)
            sizes.append(page.size)
            found += [event["id"] for event in page.events]
    assert found == ids
    assert max(sizes) <= 1_000 + 308
