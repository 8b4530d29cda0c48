"""NATS as it may be: hints are lost, doubled, late and out of order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

Ready = Callable[[Sequence[UUID]], None]
Cancelled = Callable[[int, Sequence[UUID]], None]

_LATE_S = 0.2


class Wire:
    """A publisher that carries hints badly. `fair` makes it a good one."""

    def __init__(self, rng: random.Random, *, lost: float, doubled: float, late: float, unheard: float) -> None:
        self._rng = rng
        self._lost, self._doubled, self._late, self._unheard = lost, doubled, late, unheard
        self.on_ready: Ready = lambda _: None
        self.on_cancelled: Cancelled = lambda _, __: None
        self.on_mail: Cancelled = lambda _, __: None
        self.on_pool: Callable[[Sequence[int]], None] = lambda _: None

    def fair(self) -> None:
        """From now on each hint arrives once, at once."""
        self._lost = self._doubled = self._late = self._unheard = 0.0

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str) -> None:
        """See `Publisher.publish_ready`; each run's hint goes its own way."""
        for run in run_ids:
            self._carry(lambda run=run: self.on_ready([run]))  # type: ignore[misc]

    def publish_cancel(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """See `Publisher.publish_cancel`."""
        if self._rng.random() >= self._unheard:
            self._carry(lambda: self.on_cancelled(owner, run_ids))

    def publish_mail(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """See `Publisher.publish_mail`."""
        self._carry(lambda: self.on_mail(owner, run_ids))

    def publish_pool(self, workflows: Sequence[int]) -> None:
        """See `Publisher.publish_pool`."""
        self._carry(lambda: self.on_pool(workflows))

    def publish_timers(self, run_id: UUID, due_ms: Sequence[int]) -> None:
        """See `Publisher.publish_timers`: nobody listens, schedulers look at everything."""

    def publish_defs(self, tenant: int) -> None:
        """See `Publisher.publish_defs`: nobody listens, versions are read."""

    def _carry(self, deliver: Callable[[], None]) -> None:
        if self._rng.random() < self._lost:
            return
        for _ in range(2 if self._rng.random() < self._doubled else 1):
            if self._rng.random() < self._late:
                asyncio.get_running_loop().call_later(self._rng.random() * _LATE_S, deliver)
            else:
                deliver()
