"""The clock seam: services receive a `Clock`, tests hand in one they can turn.

Postgres's clock decides what is due; this one stamps ids and measures how long things take.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where a service reads time."""

    def unix_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, from an arbitrary start."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def unix_ms(self) -> int:
        """Wall-clock milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()
