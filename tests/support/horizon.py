"""Seeing that somebody waits for the end of a transaction."""

from __future__ import annotations

import asyncio

import pytest

from services.core.engine.xact_horizon import XactHorizon


class Asks:
    """How often it was asked, and answered, which transaction is the oldest."""

    def __init__(self) -> None:
        self._count = 0
        self._came = asyncio.Condition()

    async def counted(self) -> None:
        """One more."""
        async with self._came:
            self._count += 1
            self._came.notify_all()

    async def come(self, count: int) -> None:
        """Wait until it was asked so often."""
        async with asyncio.timeout(10), self._came:
            await self._came.wait_for(lambda: self._count >= count)


@pytest.fixture
def asks(monkeypatch: pytest.MonkeyPatch) -> Asks:
    """Counts what every XactHorizon asks."""
    asks, oldest = Asks(), XactHorizon._oldest

    async def counting(horizon: XactHorizon) -> int:
        found = await oldest(horizon)
        await asks.counted()
        return found

    monkeypatch.setattr(XactHorizon, "_oldest", counting)
    return asks
