"""One row of a vector file on one side (the engine or an SDK), and how it is judged."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

HANG_S = 5.0
"""No row may take longer. A guard against hangs, not a test of speed."""


class Unhandled(Exception):
    """The row is prose that no rule here understands."""


class Hang(Exception):
    """The row took longer than `HANG_S`."""


@dataclass(frozen=True, slots=True)
class Check:
    """`run` raises AssertionError if the row does not hold, Unhandled if nobody knows what it says."""

    id: str
    run: Callable[[], None]


def expect(found: object, wanted: object) -> None:
    """Fail unless both are equal and of one type: true is not 1, and 1 is not 1.0 here."""
    alike = type(found) is type(wanted) and found == wanted
    assert alike, f"expected {wanted!r:.300}, got {found!r:.300}"


def outcome(call: Callable[[], Any], refusal: type[Exception] | tuple[type[Exception], ...]) -> Any:
    """What a call returns, or "error" where it refuses its input in the way it promises."""
    try:
        return call()
    except refusal:
        return "error"


@contextmanager
def hang_guard(seconds: float = HANG_S) -> Iterator[None]:
    """Raise Hang in the main thread when the time is over; elsewhere there is no way to stop a computation."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise Hang(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
