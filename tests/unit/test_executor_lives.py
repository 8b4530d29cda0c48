"""Lives of an executor: one after another while it is declared dead, and none after it was told to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.core.runtime.clock import SystemClock
from services.executor import executor as module
from services.executor.executor import Executor
from services.executor.owner import OwnerLost
from services.executor.worker_stream.sessions import WorkerSessions


class Bus:
    """Carries nothing."""

    def __getattr__(self, name: str) -> Any:
        async def hear(*_: Any) -> Any:
            return hear

        return hear


class Owner:
    id = 1

    async def register(self) -> None:
        """Nothing is stored."""


class Life:
    """One incarnation: declared dead at once, or just when it is told to stop."""

    def __init__(self, *, at_once: bool) -> None:
        self.owner = Owner()
        self.began = asyncio.Event()
        self._at_once = at_once

    async def run(self) -> None:
        self.began.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat())

    async def _beat(self) -> None:
        try:
            if not self._at_once:
                await asyncio.Event().wait()
        finally:
            raise OwnerLost("declared dead")


class Current:
    async def run(self) -> None:
        """Follows nothing."""
        await asyncio.Event().wait()

    def changed(self, tenant: int) -> None:
        """Nothing changes."""


async def test_an_executor_that_is_declared_dead_while_it_stops_begins_no_new_life(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def consume(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "consume_ready", consume)
    lives = [Life(at_once=True), Life(at_once=False), Life(at_once=False)]
    left = [*lives]
    sessions = WorkerSessions(SystemClock(), request_timeout_s=1, resume_grace_s=1)
    executor = Executor(Bus(), Current(), lambda: left.pop(0), sessions=sessions)  # type: ignore[arg-type,return-value]
    running = asyncio.create_task(executor.run())
    await asyncio.wait_for(lives[1].began.wait(), 30)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=30)
    assert done, "it lives on"
    assert running.cancelled()
    assert not lives[2].began.is_set()
