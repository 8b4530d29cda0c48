"""The bus over a real NATS: hints and notices reach whom they are for."""

from __future__ import annotations

import asyncio
import time
import uuid

import pytest
from nats.aio.msg import Msg

from services.core.bus.jetstream import Bus
from services.core.bus.payload import BadPayload, ReadyHint, decode_ready, encode_ready
from services.core.bus.pull import Pull
from services.core.bus.ready_consumer import consume_ready
from services.core.bus.session import Session
from services.core.engine.hints import Hints
from services.core.runtime.traceparent import headers
from tests.support.bus import GUARD_S, Taker, bus, consuming, open_bus, stream_ready
from tests.support.waiting import until

__all__ = ["bus"]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_ready_hints_reach_an_executor_with_their_trace(bus: Bus) -> None:
    runs = [uuid.uuid4() for _ in range(20)]
    taker = Taker(1_000)
    async with consuming(bus, taker):
        Hints(bus).ready(runs, traceparent=TRACE)
        await until(lambda: len(taker.runs) >= 20)
    assert sorted(taker.runs) == sorted(runs)
    assert {hint.traceparent for hint in taker.hints} == {TRACE}


@pytest.mark.parametrize("trace", ["", TRACE, f"vendor=1 {TRACE}", f"vendor=1\r\nX: y {TRACE}"])
async def test_a_hint_that_waits_is_the_same_as_one_that_is_written_at_once(bus: Bus, trace: str) -> None:
    session = await bus.session()
    heard: list[tuple[bytes, object]] = []

    async def hear(message: Msg) -> None:
        heard.append((message.data, message.headers))

    await session.client.subscribe(bus.subjects.every_ready, cb=hear)
    await session.client.flush()
    run = uuid.uuid4()
    bus.publish_ready([run], trace)
    await until(lambda: len(heard) == 1)
    await session.client.publish(bus.subjects.defs(1), b"")  # waits to be written: so does what comes after
    bus.publish_ready([run], trace)
    await until(lambda: len(heard) == 2)
    assert heard[0] == heard[1]
    assert set(heard[0][1] or {}) == set(headers(trace))  # type: ignore[call-overload]


async def test_hints_come_in_their_order(bus: Bus) -> None:
    runs = [uuid.uuid4() for _ in range(300)]
    taker = Taker(1_000)
    async with consuming(bus, taker):
        for place, run in enumerate(runs):
            Hints(bus).ready([run])
            if place % 7 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(taker.runs) >= 300)
    assert taker.runs == runs


async def test_p6_a_message_names_several_runs_of_whatever_partitions(bus: Bus) -> None:
    runs = [uuid.uuid4() for _ in range(601)]
    taker = Taker(10_000)
    async with consuming(bus, taker):
        Hints(bus).ready(runs)
        await until(lambda: len(taker.runs) >= 601)
    assert sorted(taker.runs) == sorted(runs)
    assert sorted(len(hint.run_ids) for hint in taker.hints) == [9, *[16] * 37]


async def test_hints_are_taken_off_the_stream_when_they_arrive(bus: Bus) -> None:
    taker = Taker(1_000)
    async with consuming(bus, taker):
        Hints(bus).ready([uuid.uuid4()])
        await until(lambda: len(taker.runs) == 1)

        async def nothing_is_left() -> bool:
            return await bus.pending() == 0

        await until(nothing_is_left)


async def test_an_executor_without_room_asks_for_nothing(bus: Bus, nats_url: str, nats_prefix: str) -> None:
    full, free = Taker(0), Taker(1_000)
    runs = [uuid.uuid4() for _ in range(10)]
    async with consuming(bus, full):
        # Whose request is open when it goes may be sent a hint yet, so it goes altogether.
        async with open_bus(nats_url, nats_prefix) as other, consuming(other, free):
            Hints(bus).ready(runs)
            await until(lambda: len(free.runs) == 10)
        assert full.hints == []
        late = uuid.uuid4()
        Hints(bus).ready([late])
        full.widen(5)
        await until(lambda: full.runs == [late])


async def test_a_hint_reaches_one_executor_only(bus: Bus, nats_url: str, nats_prefix: str) -> None:
    one, two = Taker(10_000), Taker(10_000)
    runs = [uuid.uuid4() for _ in range(500)]
    async with open_bus(nats_url, nats_prefix) as other, consuming(bus, one), consuming(other, two):
        for run in runs:
            Hints(bus).ready([run])
        await until(lambda: len(one.runs) + len(two.runs) >= 500)
    assert sorted(one.runs + two.runs) == sorted(runs)


async def test_notices_reach_whom_they_name(bus: Bus, nats_url: str, nats_prefix: str) -> None:
    cancelled: list[uuid.UUID] = []
    timers: list[tuple[uuid.UUID, int]] = []
    tenants: list[int] = []

    async def on_cancel(runs: tuple[uuid.UUID, ...]) -> None:
        cancelled.extend(runs)

    async def on_timers(found: tuple[tuple[uuid.UUID, int], ...]) -> None:
        timers.extend(found)

    async def on_defs(tenant: int) -> None:
        tenants.append(tenant)

    run = uuid.uuid4()
    async with open_bus(nats_url, nats_prefix) as other:
        await bus.on_cancel(2**62 + 1, on_cancel)
        await bus.on_timers(on_timers)
        await bus.on_defs(on_defs)
        hints = Hints(other)
        hints.cancelled(5, [uuid.uuid4()])
        hints.cancelled(None, [uuid.uuid4()])
        hints.cancelled(2**62 + 1, [run])
        hints.timers(run, 1_800_000_000_000, 1_800_000_000_001)
        hints.defs_changed(7)
        await until(lambda: tenants == [7] and len(timers) == 2 and len(cancelled) == 1)
    assert cancelled == [run]
    assert timers == [(run, 1_800_000_000_000), (run, 1_800_000_000_001)]


async def test_prefixes_keep_stacks_apart(bus: Bus, nats_url: str, nats_prefix: str) -> None:
    mine, theirs = Taker(100), Taker(100)
    async with open_bus(nats_url, f"{nats_prefix}x") as other, consuming(bus, mine), consuming(other, theirs):
        await stream_ready(other)
        a, b = uuid.uuid4(), uuid.uuid4()
        Hints(other).ready([b])
        Hints(bus).ready([a])
        await until(lambda: bool(mine.runs and theirs.runs))
    assert (mine.runs, theirs.runs) == ([a], [b])


async def test_a_fault_of_the_taker_costs_its_hints_only(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    taker = Taker(100)

    async def deliver(hint: ReadyHint) -> None:
        if not taker.arrived.is_set():
            taker.arrived.set()
            raise RuntimeError("the taker is broken")
        await taker.deliver(hint)

    task = asyncio.create_task(consume_ready(bus, deliver, taker.capacity))
    try:
        Hints(bus).ready([uuid.uuid4()])
        await asyncio.wait_for(taker.arrived.wait(), GUARD_S)
        second = uuid.uuid4()
        Hints(bus).ready([second])
        await until(lambda: taker.runs == [second])
    finally:
        task.cancel()
        await asyncio.wait({task})
    assert "a hint was not taken" in caplog.text


async def test_a_consumer_that_stops_ends_at_once_and_its_share_goes_to_others(
    bus: Bus, nats_url: str, nats_prefix: str
) -> None:
    leaver, stayer = Taker(100), Taker(100)
    async with open_bus(nats_url, nats_prefix) as other:
        async with consuming(bus, leaver) as task:
            Hints(bus).ready([uuid.uuid4()])
            await until(lambda: len(leaver.runs) == 1)
            began = time.monotonic()
            task.cancel()
            await asyncio.wait({task})
            assert time.monotonic() - began < 5
        await (await bus.session()).client.flush()
        async with consuming(other, stayer):
            run = uuid.uuid4()
            Hints(bus).ready([run])
            await until(lambda: stayer.runs == [run])


async def test_a_pull_ends_when_it_is_served(bus: Bus) -> None:
    """The server says nothing then: whoever waited for it would lose the time that the request was open."""

    async def receive(message: Msg) -> bytes:
        await session.client.publish(message.reply, b"+ACK")
        return message.data

    async def take(messages: list[bytes]) -> None:
        taken.extend(messages)

    taken: list[bytes] = []
    session = await bus.session()
    for number in range(3):
        await session.client.jetstream().publish(bus.subjects.ready(number), b"hint")
    pull = Pull(session, batch=3, max_bytes=10_000, expires_s=60.0, receive=receive)
    async with asyncio.timeout(GUARD_S):
        await pull.run(bus.subjects.pull, take)
    assert taken == [b"hint"] * 3


async def test_drain_sends_what_was_queued(bus: Bus, nats_url: str, nats_prefix: str) -> None:
    taker = Taker(100)
    run = uuid.uuid4()
    async with consuming(bus, taker):
        async with open_bus(nats_url, nats_prefix) as leaving:
            Hints(leaving).ready([run])
            await leaving.drain()
        await until(lambda: taker.runs == [run])


async def test_a_message_that_is_no_hint_is_passed_over(bus: Bus) -> None:
    taker = Taker(100)
    run = uuid.uuid4()
    session: Session = await bus.session()
    async with consuming(bus, taker):
        await session.client.publish(bus.subjects.ready(0), b"\xff\xff\xff")
        await session.client.publish(bus.subjects.ready(0), b"\x0a\x03abc")
        Hints(bus).ready([run])
        await until(lambda: taker.runs == [run])


def test_payloads_come_back_as_they_went_and_garbage_is_refused() -> None:
    runs = (uuid.uuid4(), uuid.uuid4())
    assert decode_ready(encode_ready(runs, TRACE)) == ReadyHint(runs, TRACE)
    with pytest.raises(BadPayload):
        decode_ready(b"\x0a\x03abc")
