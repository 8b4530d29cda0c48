"""Ends the arming of waits that look back, where their executor did not (rulings C8)."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.engine.look_backs import LookBacks
from services.scheduler.ticker import PeriodicDuty

MIN_AGE_MS = 2_000


class Arming(PeriodicDuty):
    """The duty that arms waits left arming."""

    name = "arming"
    period_s = 2.0

    def __init__(self, look_backs: LookBacks) -> None:
        self._look_backs = look_backs

    async def run_once(self) -> Mapping[str, int]:
        """See to it that somebody looks back for some of each tenant. Raises Unavailable."""
        return {"looking": await self._look_backs.sweep(MIN_AGE_MS)}
