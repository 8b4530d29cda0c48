"""The clock of a process whose monotonic side the test turns."""

from __future__ import annotations

from services.core.runtime.clock import SystemClock


class TurnedClock(SystemClock):
    """The machine's clock, with `ahead_s` more seconds on its monotonic side."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock, and those that the test added."""
        return super().monotonic() + self.ahead_s
