"""What a run is to the rules: its status, and the little that decisions need to know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import msgspec


class Status(Enum):
    """Every status of a run. The value is the letter in `rt.live.st`, or the word in `rt.ends.status`."""

    QUEUED = "q"
    BLOCKED = "b"  # queued, before a full concurrency gate
    DELAYED = "d"  # queued, not before a backoff or a later start is due
    RUNNING = "r"
    SLEEPING = "s"
    WAITING = "w"
    PARKED = "p"  # its worker's stream broke; kept for that worker for a moment
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"

    __hash__ = object.__hash__  # each is one object: Enum's own goes by the name, in Python, at every look at a table

    @property
    def is_terminal(self) -> bool:
        """Whether the run has ended."""
        return self in TERMINAL

    @property
    def shown(self) -> str:
        """The word that the API shows (engine section 5)."""
        return _SHOWN.get(self, self.value)


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.TIMED_OUT})
ACTIVE = frozenset(Status) - TERMINAL

_SHOWN = {
    Status.QUEUED: "queued",
    Status.BLOCKED: "queued",
    Status.DELAYED: "queued",
    Status.RUNNING: "running",
    Status.SLEEPING: "sleeping",
    Status.WAITING: "waiting",
    Status.PARKED: "running",
}


STEP_KINDS = {"run": "r", "sleep": "s", "wait_for_event": "e", "invoke": "i", "send_event": "n"}
"""Letter of a step's kind in the store, by its word."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one run that the state machine itself enforces (engine section 8)."""

    max_steps: int = 10_000
    max_state_bytes: int = 16 * 1024 * 1024
    max_repeats: int = 3
    default_wait_ms: int = 7 * 86_400_000


class RunView(msgspec.Struct, frozen=True):
    """What a decision sees of a run.

    `step_failures`: failed attempts so far of steps that are being retried, by step id. `open_steps`: letters of the
    waits of steps that have begun and have no result, by step id: s sleep, e event, c child, b backoff. `streamed`: a
    worker executes it over its stream.
    """

    status: Status
    max_attempts: int
    function_failures: int = 0
    repeats: int = 0
    steps: int = 0
    state_bytes: int = 0
    gated: bool = False
    streamed: bool = False
    step_failures: Mapping[str, int] = msgspec.field(default_factory=dict)
    open_steps: Mapping[str, str] = msgspec.field(default_factory=dict)
    limits: Limits = msgspec.field(default_factory=Limits)
