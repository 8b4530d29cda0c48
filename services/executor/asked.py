"""When a function asked for a sleep, which lasts from then, not from when the answer was read (protocol section 3)."""

from __future__ import annotations

from collections.abc import Sequence

from services.core.domain.op import Op, Sleep, StepCompleted
from services.core.runtime.clock import Clock

_MOST_S = 0.25


def asked_s_ago(ops: Sequence[Op], sent_s: float, clock: Clock) -> float:
    """How many seconds ago the function asked for the sleep that it has just answered. 0: for none, or nobody can tell.

    A function tells that by its own clock. It is believed where it can be true: where that is after the last thing that
    it was sent (at `sent_s` of the monotonic clock), and no more than a moment ago. So clocks that differ by more than
    an answer takes are found out, and others shorten a sleep by less than that.
    """
    *before, last = ops
    if not isinstance(last, Sleep) or last.asked_ms is None or not all(isinstance(op, StepCompleted) for op in before):
        return 0.0
    ago_s = (clock.unix_ms() - last.asked_ms) / 1_000
    return ago_s if 0 < ago_s <= min(_MOST_S, clock.monotonic() - sent_s) else 0.0
