"""Causes: everything that can change the status of a run. A closed union; `transition.decide` answers each."""

from __future__ import annotations

import msgspec

from services.core.domain.op import FunctionFault, Op


class LeaseTaken(msgspec.Struct, frozen=True):
    """An executor claimed the queued run."""


class Answered(msgspec.Struct, frozen=True):
    """The function answered ops, in order. `repeated` holds the ids among them that the run has memoized already.

    `jitter` (0.8–1.2) is the random part of a backoff; `wanted` says that another run waits for this one's slot.
    `ago_s` seconds ago the function asked for its sleep.
    """

    ops: tuple[Op, ...]
    repeated: frozenset[str] = frozenset()
    jitter: float = 1.0
    wanted: bool = False
    ago_s: float = 0.0


class Reported(msgspec.Struct, frozen=True):
    """Ops that a worker reported over its stream, in the order in which they came. None of them assumed that another
    was stored. `executing`: the invocation goes on; what rests in it is stored beside it. Otherwise as in `Answered`.
    """

    ops: tuple[Op, ...]
    repeated: frozenset[str] = frozenset()
    jitter: float = 1.0
    executing: bool = False
    ago_s: float = 0.0


class Unwound(msgspec.Struct, frozen=True):
    """The worker has nothing left to do in this invocation: all that is left of the run is open."""


class FunctionFailed(msgspec.Struct, frozen=True):
    """No valid answer: a failed function attempt."""

    fault: FunctionFault
    jitter: float = 1.0


class LeaseExpired(msgspec.Struct, frozen=True):
    """The process that held the run is gone."""


class Due(msgspec.Struct, frozen=True):
    """A sleep, backoff, later start, park or timeout of a wait is due."""


class Delivered(msgspec.Struct, frozen=True):
    """An event matched a wait, or a child ended."""


class SlotGranted(msgspec.Struct, frozen=True):
    """A blocked run got its place behind the gate."""


class LetGo(msgspec.Struct, frozen=True):
    """The holder gives the run back without an attempt (drain)."""


class Cancel(msgspec.Struct, frozen=True):
    """Cancelled by the API, a cancel_on event or a parent's end."""


class DeadlinePassed(msgspec.Struct, frozen=True):
    """The run's own timeout is over."""


class Resumed(msgspec.Struct, frozen=True):
    """The worker that executes the run over its stream has come to another executor and goes on there."""


class NotBegun(msgspec.Struct, frozen=True):
    """The worker that the run is kept for says that nothing of it has ever begun there."""


class Retried(msgspec.Struct, frozen=True):
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
