"""The bus over a real NATS that goes, comes back or forgets: nothing blocks, fails or spins."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from services.core.bus.jetstream import Bus
from services.core.bus.subjects import CONSUMER
from services.core.engine.hints import Hints
from services.embedded.stack import EmbeddedStack
from tests.support.bus import GUARD_S, Taker, bus, consuming, open_bus, stream_ready
from tests.support.waiting import until

__all__ = ["bus"]


async def test_an_ended_hearing_leaves_nothing_behind(
    bus: Bus, nats_stack: EmbeddedStack, nats_url: str, nats_prefix: str
) -> None:
    heard: list[tuple[int, uuid.UUID]] = []

    def hearing(owner: int) -> Callable[[tuple[uuid.UUID, ...]], Awaitable[None]]:
        async def on_cancel(runs: tuple[uuid.UUID, ...]) -> None:
            heard.extend((owner, run) for run in runs)

        return on_cancel

    async def told(owner: int) -> None:
        def asked() -> bool:  # again and again: a subscription takes a moment to reach the server
            Hints(other).cancelled(owner, [run])
            return (owner, run) in heard

        await until(asked)

    async with open_bus(nats_url, nats_prefix) as other:
        for owner in range(1, 30):  # one life after another
            run = uuid.uuid4()
            end = await bus.on_cancel(owner, hearing(owner))
            await told(owner)
            await end()
            await end()
        await bus.on_cancel(30, hearing(30))
        run = uuid.uuid4()
        Hints(other).cancelled(29, [run])
        await told(30)  # a later message of the same sender
        assert (29, run) not in heard
        assert len((await bus.session()).client._subs) < 10, "subscriptions of ended lives are still open"
        await asyncio.to_thread(nats_stack.stop, "nats")
        try:
            await until(lambda: not bus.connected)
        finally:
            await asyncio.to_thread(nats_stack.start, "nats")
        await until(lambda: bus.connected and other.connected)
        run = uuid.uuid4()
        Hints(other).cancelled(29, [run])
        await told(30)
        assert len((await bus.session()).client._subs) < 10
    assert (29, run) not in heard


async def test_who_subscribes_while_it_connects_is_heard(nats_url: str, nats_prefix: str) -> None:
    tenants: list[int] = []

    async def on_defs(tenant: int) -> None:
        tenants.append(tenant)

    bus = Bus(nats_url, prefix=nats_prefix)
    for _ in range(200):
        await bus.on_timers(lambda _: asyncio.sleep(0))
    starting = asyncio.create_task(bus.start())
    try:
        while not any(each.session for each in bus._hearings):
            await asyncio.sleep(0)
        assert not bus.connected
        await bus.on_defs(on_defs)
        await starting
        Hints(bus).defs_changed(3)
        await until(lambda: tenants == [3])
    finally:
        await bus.stop()


async def test_without_nats_publishing_drops_and_counts(nats_prefix: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        port = held.getsockname()[1]
        began = time.monotonic()
        async with open_bus(f"nats://127.0.0.1:{port}", nats_prefix) as bus:
            assert not bus.connected
            hints = Hints(bus)
            hints.ready([uuid.UUID(int=0), uuid.UUID(int=1)])
            hints.defs_changed(1)
            assert bus.dropped == 2
            assert await bus.pending() is None
            await bus.drain()
        assert time.monotonic() - began < 5


async def test_a_full_outbox_drops_instead_of_growing(nats_prefix: str) -> None:
    deaf, over, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Says what a NATS says to one that connects, and reads nothing any more once it is deaf."""
        writer.write(b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true}\r\n')
        while not deaf.is_set() and (said := await reader.read(4096)):
            writer.write(b"PONG\r\n" * said.count(b"PING\r\n"))
        await over.wait()
        writer.transport.abort()  # what the other side has not got rid of yet does not keep it
        gone.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    bus = Bus(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}", prefix=nats_prefix, max_queued=10)
    await bus.start()
    try:
        await until(lambda: bus.connected)
        deaf.set()
        runs = [uuid.uuid4() for _ in range(16)]
        for _ in range(200_000):  # without giving the sender a turn: as much as the system takes, and then ten
            bus.publish_ready(runs)
            if bus.dropped:
                break
        for _ in range(25):
            bus.publish_ready(runs)
        assert bus.dropped == 26
        over.set()
        await asyncio.wait_for(gone.wait(), GUARD_S)
        await until(lambda: not bus.connected)
    finally:
        server.close()
        await bus.stop()


async def test_nats_restart_loses_the_stream_and_everything_comes_back(
    nats_stack: EmbeddedStack, nats_url: str, nats_prefix: str
) -> None:
    taker = Taker(10_000)
    tenants: list[int] = []

    async def on_defs(tenant: int) -> None:
        tenants.append(tenant)

    async with open_bus(nats_url, nats_prefix) as bus, consuming(bus, taker):
        await bus.on_defs(on_defs)
        await stream_ready(bus)
        first = uuid.uuid4()
        Hints(bus).ready([first])
        await until(lambda: taker.runs == [first])
        await asyncio.to_thread(nats_stack.stop, "nats")
        try:
            await until(lambda: not bus.connected)
            before = cpu_s()
            Hints(bus).ready([uuid.uuid4()])
            assert bus.dropped >= 1
            await asyncio.sleep(1.0)
            assert cpu_s() - before < 0.5, "a consumer without NATS must not spin"
        finally:
            await asyncio.to_thread(nats_stack.start, "nats")
        await until(lambda: bus.connected)
        await stream_ready(bus)
        second = uuid.uuid4()
        Hints(bus).ready([second])
        Hints(bus).defs_changed(9)
        await until(lambda: taker.runs == [first, second] and tenants == [9])


async def test_a_stream_that_vanishes_is_made_again(bus: Bus) -> None:
    taker = Taker(100)
    session = await bus.session()
    await session.client.jetstream().delete_stream(bus.subjects.stream)
    async with consuming(bus, taker):
        await stream_ready(bus)
        run = uuid.uuid4()
        Hints(bus).ready([run])
        await until(lambda: taker.runs == [run])


async def test_a_consumer_that_vanishes_while_pulled_is_made_again(bus: Bus) -> None:
    taker = Taker(100)
    session = await bus.session()
    async with consuming(bus, taker):
        first, second = uuid.uuid4(), uuid.uuid4()
        Hints(bus).ready([first])
        await until(lambda: taker.runs == [first])
        await session.client.jetstream().delete_consumer(bus.subjects.stream, CONSUMER)
        Hints(bus).ready([second])
        await until(lambda: taker.runs == [first, second])


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def test_a_connection_that_breaks_while_something_waits_to_be_written_is_made_anew(bus: Bus) -> None:
    session = await bus.session()
    client = session.client
    client._pending.append(b"PING\r\n")  # as where a message comes between the break and its notice
    client._pending_data_size += 6
    transport: Any = client._transport
    transport._io_reader.set_exception(BrokenPipeError())
    await asyncio.wait_for(session.closed.wait(), GUARD_S)

    async def another() -> bool:
        return await bus.session() is not session

    await until(another)
