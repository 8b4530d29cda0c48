"""What the engine has acknowledged and what was done to it, as the model keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from services.core.engine.dedupe import Accepted


@dataclass(frozen=True, slots=True)
class Sent:
    """An event that was sent, and what was answered."""

    tenant: int
    name: str
    data: dict[str, Any]
    event_id: str | None
    accepted: Accepted


class Replayed(NamedTuple):
    """What a replay is of: the run, the step that it begins with, and those before it, which had completed."""

    run: UUID
    step: str | None
    completed: Collection[str]


@dataclass
class Ledger:
    """What was done, and what was answered. Times are Unix milliseconds of the episode."""

    known: dict[UUID, int] = field(default_factory=dict)
    """Run → when it was acknowledged first."""
    keyed: dict[tuple[int, str, str], set[UUID]] = field(default_factory=dict)
    """(tenant, workflow, idempotency key) → the runs that starts with it led to."""
    new: Counter[UUID] = field(default_factory=Counter)
    """How many calls said that they started the run."""
    delays: dict[UUID, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    retries: Counter[UUID] = field(default_factory=Counter)
    """Calls of retry, whether they did something or not."""
    retried: Counter[UUID] = field(default_factory=Counter)
    """Calls of retry that did."""
    cancelled: set[UUID] = field(default_factory=set)
    replays: dict[UUID, Replayed] = field(default_factory=dict)
    interrupted: Counter[UUID] = field(default_factory=Counter)
    """How often an executor stopped in order while it held the run, or a worker while it executed it."""
    ends: dict[UUID, tuple[object, ...]] = field(default_factory=dict)
    """Run → its end as it was last seen."""
    paused: set[tuple[int, str]] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    """Workflows that were ever paused."""
    faults: list[str] = field(default_factory=list)

    def know(self, run: UUID, now_ms: int) -> None:
        """A run that was acknowledged by now."""
        if run not in self.known:
            self.known[run] = now_ms

    @property
    def runs(self) -> Collection[UUID]:
        """All runs that were acknowledged."""
        return self.known.keys()
