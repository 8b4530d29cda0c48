"""Timers of an executor while the database's clock is set: how far ahead it asks the database to prepare them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from services.executor.own_timers import OwnTimers, Timer
from services.executor.woken import Woken

_AT_ONCE = 3


class Clock:
    """The database's, as it is known here."""

    now_ms = 1_000_000.0

    def certain_ms(self) -> float:
        return self.now_ms

    def unix_ms(self) -> int:
        return int(self.now_ms)


class Database:
    """Calls that last until they are let go. Stands for the claimer."""

    may_wake_ahead = True

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[list[UUID], int]] = asyncio.Queue()
        self.go_on = asyncio.Event()

    async def wake(self, waits: Sequence[UUID], *, ahead_ms: int, traced: bool) -> Woken:
        self.asked.put_nowait((list(waits), ahead_ms))
        await self.go_on.wait()
        return Woken([], [], [])


class Quiet:
    """Hints, gates and traces that nobody hears."""

    enabled = False

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any) -> Any:
        return self

    def __await__(self) -> Any:
        return iter(())


async def test_a_clock_that_is_set_back_while_all_calls_are_under_way_makes_none_of_them_long() -> None:
    clock, database, quiet = Clock(), Database(), Quiet()
    timers = OwnTimers(database, quiet, quiet, quiet, clock)  # type: ignore[arg-type]
    running = asyncio.create_task(timers.run())

    def timer(in_ms: float) -> Timer:
        return Timer(clock.now_ms + in_ms, 0, uuid4(), uuid4())

    async with asyncio.timeout(30):
        for _ in range(_AT_ONCE):
            timers.keep(timer(0))
            await database.asked.get()
        late = timer(5)
        timers.keep(late)
        for _ in range(10):
            await asyncio.sleep(0)
        clock.now_ms -= 3_600_000
        database.go_on.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert database.asked.empty()
        clock.now_ms += 3_600_000
        timers.keep(timer(0))  # so it looks at the clock again
        waits: list[UUID] = []
        while late.wait not in waits:
            waits, ahead_ms = await database.asked.get()
            assert ahead_ms < 50
    running.cancel()
    await asyncio.wait({running})
