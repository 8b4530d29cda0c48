"""A stream to ingest ends when it is told to, whatever becomes of its call at that moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc

from services.core.runtime.clock import SystemClock
from services.core.runtime.parse import Address
from services.gateway.submit.lane import Lane
from services.gateway.submit.told_clock import ToldClock


class ForgetfulCall:
    """A call that fails by itself when its reader is cancelled, as one of grpc may while it begins."""

    def __init__(self, reading: asyncio.Event) -> None:
        self._reading = reading

    async def read(self) -> Any:
        try:
            self._reading.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing) from None

    def cancel(self) -> None:
        """It is over anyway."""


class Channel:
    async def close(self) -> None:
        """Nothing was opened."""


async def test_a_cancellation_that_grpc_forgets_ends_the_lane() -> None:
    reading = asyncio.Event()
    form: Any = SimpleNamespace(opens=lambda channel: lambda wait_for_ready: ForgetfulCall(reading))
    lane = Lane(
        Address("127.0.0.1", 1),
        form,
        dial=lambda address: Channel(),
        orphan=lambda item: None,
        told=ToldClock(SystemClock()),
        clock=SystemClock(),
    )
    task = asyncio.create_task(lane.run(lambda: None))
    await reading.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=30)
    assert task.cancelled()
