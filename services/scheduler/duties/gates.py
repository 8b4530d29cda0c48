"""Lets blocked runs through concurrency gates whose room nobody gave away (rulings C16): the net below
`Gates.grant`. Before, runs whose workflow's limits were changed are put before the gates of now.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.core.engine.gates import Gates, Pair
from services.core.engine.regate import Regater
from services.scheduler.ticker import PeriodicDuty

_BATCH = 100
_MOST = 1_000
_MOST_MOVED = 5_000
_BEFORE_ALL: Pair = (-(1 << 63), None)


class SweepGates(PeriodicDuty):
    """The duty that visits gates where runs wait, in turn, at most a thousand a pass."""

    name = "gates"
    period_s = 1.0

    def __init__(self, gates: Gates, regater: Regater) -> None:
        self._gates = gates
        self._regater = regater
        self._after = _BEFORE_ALL

    async def run_once(self) -> Mapping[str, int]:
        """Grant what there is room for, from where the last pass ended. Raises Unavailable."""
        moved = await self._move()
        granted = visited = 0
        while visited < _MOST:
            found = await self._gates.blocked(self._after, _BATCH)
            granted += len(await self._gates.grant(found))
            visited += len(found)
            if len(found) < _BATCH:
                self._after = _BEFORE_ALL
                break
            self._after = found[-1]
        return {"granted": granted, "moved": moved}

    async def _move(self) -> int:
        moved = 0
        while moved < _MOST_MOVED and (some := await self._regater.sweep()):
            moved += some
        return moved
