"""What the engine has acknowledged and what was done to it, as the model keeps it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any
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


@dataclass
class Ledger:
    """`runs` are all that were acknowledged, in that order."""

    runs: list[UUID] = field(default_factory=list)
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
    replays: dict[UUID, tuple[UUID, str | None]] = field(default_factory=dict)
    """Replay → what it is of, and from which step."""
    interrupted: Counter[UUID] = field(default_factory=Counter)
    """How often an executor stopped in order while it held the run."""
    ends: dict[UUID, tuple[object, ...]] = field(default_factory=dict)
    """Run → its end as it was last seen."""
    paused: set[tuple[int, str]] = field(default_factory=set)
    touched: set[str] = field(default_factory=set)
    """Workflows that were ever paused."""
    faults: list[str] = field(default_factory=list)

    def know(self, run: UUID) -> None:
        """A run that was acknowledged."""
        if run not in self.runs:
            self.runs.append(run)
