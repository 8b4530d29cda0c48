"""Causes: everything that can change the status of a run. A closed union; `transition.decide` answers each."""

from __future__ import annotations

from dataclasses import dataclass

from services.core.domain.op import FunctionFault, Op


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """An executor claimed the queued run."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The function answered ops, in order. `repeated` holds the ids among them that the run has memoized already.

    `jitter` (0.8–1.2) is the random part of a backoff; `wanted` says that another run waits for this one's slot.
    """

    ops: tuple[Op, ...]
    repeated: frozenset[str] = frozenset()
    jitter: float = 1.0
    wanted: bool = False


@dataclass(frozen=True, slots=True)
class Reported:
    """Ops that a worker reported over its stream, in the order in which they came. None of them assumed that another
    was stored. `executing`: the invocation goes on; what rests in it is stored beside it. Otherwise as in `Answered`.
    """

    ops: tuple[Op, ...]
    repeated: frozenset[str] = frozenset()
    jitter: float = 1.0
    executing: bool = False


@dataclass(frozen=True, slots=True)
class Unwound:
    """The worker has nothing left to do in this invocation: all that is left of the run is open."""


@dataclass(frozen=True, slots=True)
class FunctionFailed:
    """No valid answer: a failed function attempt."""

    fault: FunctionFault
    jitter: float = 1.0


@dataclass(frozen=True, slots=True)
class LeaseExpired:
    """The process that held the run is gone."""


@dataclass(frozen=True, slots=True)
class Due:
    """A sleep, backoff, later start, park or timeout of a wait is due."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event matched a wait, or a child ended."""


@dataclass(frozen=True, slots=True)
class SlotGranted:
    """A blocked run got its place behind the gate."""


@dataclass(frozen=True, slots=True)
class LetGo:
    """The holder gives the run back without an attempt (drain)."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancelled by the API, a cancel_on event or a parent's end."""


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The run's own timeout is over."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The worker that executes the run over its stream has come to another executor and goes on there."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """The worker that the run is kept for says that nothing of it has ever begun there."""


@dataclass(frozen=True, slots=True)
class Retried:
    """The API asks an ended run to go on from where it stopped."""


Cause = (
    LeaseTaken
    | Answered
    | Reported
    | Unwound
    | FunctionFailed
    | LeaseExpired
    | Due
    | Delivered
    | SlotGranted
    | LetGo
    | NotBegun
    | Cancel
    | DeadlinePassed
    | Resumed
    | Retried
)
