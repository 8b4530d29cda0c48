"""Ends the arming of waits that look back, where their executor did not (rulings C8)."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.engine.look_back import LookBack
from services.scheduler.ticker import PeriodicDuty

MIN_AGE_MS = 2_000


class Arming(PeriodicDuty):
    """The duty that arms waits left arming."""

    name = "arming"
    period_s = 2.0

    def __init__(self, look_back: LookBack) -> None:
        self._look_back = look_back

    async def run_once(self) -> Mapping[str, int]:
        """Arm some of them. Raises Unavailable."""
        return {"armed": await self._look_back.sweep(MIN_AGE_MS)}
