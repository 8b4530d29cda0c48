"""A bus over a real NATS, and an executor's side of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.core.bus.jetstream import Bus
from services.core.bus.payload import ReadyHint
from services.core.bus.ready_consumer import consume_ready
from tests.support.waiting import until

GUARD_S = 15.0


@asynccontextmanager
async def open_bus(url: str, prefix: str) -> AsyncIterator[Bus]:
    bus = Bus(url, prefix=prefix)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


@pytest.fixture
async def bus(nats_url: str, nats_prefix: str) -> AsyncIterator[Bus]:
    async with open_bus(nats_url, nats_prefix) as opened:
        await stream_ready(opened)
        yield opened


async def stream_ready(bus: Bus) -> None:
    """Wait until the stream of hints is there."""

    async def is_there() -> bool:
        return await bus.pending() is not None

    await until(is_there)


class Taker:
    """An executor's side: room for a number of runs, and what it was given."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.hints: list[ReadyHint] = []
        self.arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def runs(self) -> list[uuid.UUID]:
        return [run for hint in self.hints for run in hint.run_ids]

    def widen(self, room: int) -> None:
        self.room = room
        self._has_room.set()

    async def capacity(self) -> int:
        while self.room <= 0:
            self._has_room.clear()
            await self._has_room.wait()
        return self.room

    async def deliver(self, hint: ReadyHint) -> None:
        self.hints.append(hint)
        self.room -= len(hint.run_ids)
        self.arrived.set()


@asynccontextmanager
async def consuming(bus: Bus, taker: Taker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(consume_ready(bus, taker.deliver, taker.capacity))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
