"""Hints after a commit: what became ready, what must stop, when to look, what to read again (architecture section 2).

Call them only after the transaction has committed. They never block and never fail: a hint that is lost costs time, not
work, because the rows are looked at anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

TIMER_HORIZON_MS = 60_000
"""Schedulers hold the timers of this time ahead; a later one needs no hint."""


class Publisher(Protocol):
    """What carries hints. `services.core.bus.jetstream.Bus` is the real one."""

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str) -> None:
        """Runs to be claimed."""
        ...

    def publish_cancel(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Runs that `owner` holds no more."""
        ...

    def publish_mail(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Runs that `owner` holds and that got something."""
        ...

    def publish_pool(self, workflows: Sequence[int]) -> None:
        """Workflows with runs for whoever has a worker of them."""
        ...

    def publish_timers(self, run_id: UUID, due_ms: Sequence[int]) -> None:
        """Due times of one run's timers, unix milliseconds."""
        ...

    def publish_defs(self, tenant: int) -> None:
        """Definitions of `tenant` have changed."""
        ...


class NullPublisher:
    """Carries nothing, as a NATS that is away: the engine must do without."""

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str) -> None:
        """Nothing."""

    def publish_cancel(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Nothing."""

    def publish_mail(self, owner: int, run_ids: Sequence[UUID]) -> None:
        """Nothing."""

    def publish_pool(self, workflows: Sequence[int]) -> None:
        """Nothing."""

    def publish_timers(self, run_id: UUID, due_ms: Sequence[int]) -> None:
        """Nothing."""

    def publish_defs(self, tenant: int) -> None:
        """Nothing."""


class Hints:
    """The hints of the engine, in its own words."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    def ready(self, run_ids: Sequence[UUID], traceparent: str | None = None) -> None:
        """These runs are in the queue. `traceparent` is of what made them ready."""
        if run_ids:
            self._publisher.publish_ready(run_ids, traceparent or "")

    def cancelled(self, owner_id: int | None, run_ids: Sequence[UUID]) -> None:
        """These runs ended or were taken away while `owner_id` held them; None: nobody held them, nobody is told."""
        if owner_id is not None and run_ids:
            self._publisher.publish_cancel(owner_id, run_ids)

    def delivered(self, owners: Iterable[tuple[UUID, int | None]]) -> None:
        """These runs got something; with each whoever holds it, if anybody does.

        A holder reads it with its next commit anyway. That may be long in coming where a worker executes one of several
        steps.
        """
        held: dict[int, list[UUID]] = {}
        for run, owner in owners:
            if owner is not None:
                held.setdefault(owner, []).append(run)
        for holder, runs in held.items():
            self._publisher.publish_mail(holder, runs)

    def pooled(self, workflows: Sequence[int]) -> None:
        """These workflows, which only workers serve, have runs in the queue, and no worker of this process has room."""
        if workflows:
            self._publisher.publish_pool(workflows)

    def timers(self, run_id: UUID, *due_ms: int) -> None:
        """Waits of `run_id` are due at these unix milliseconds; worth telling within `TIMER_HORIZON_MS`."""
        if due_ms:
            self._publisher.publish_timers(run_id, due_ms)

    def defs_changed(self, tenant: int) -> None:
        """The definitions of `tenant` are others now."""
        self._publisher.publish_defs(tenant)
