"""Lets blocked runs through concurrency gates whose room nobody gave away (rulings C16): the net below
`Gates.grant`.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.core.engine.gates import Gates
from services.scheduler.ticker import PeriodicDuty

_BATCH = 100
_MOST = 1_000
_BEFORE_ALL = -(1 << 63)


class SweepGates(PeriodicDuty):
    """The duty that visits gates where runs wait, in turn, at most a thousand a pass."""

    name = "gates"
    period_s = 1.0

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._after = _BEFORE_ALL

    async def run_once(self) -> Mapping[str, int]:
        """Grant what there is room for, from where the last pass ended. Raises Unavailable."""
        granted = visited = 0
        while visited < _MOST:
            found = await self._gates.blocked(self._after, _BATCH)
            granted += len(await self._gates.grant(found))
            visited += len(found)
            if len(found) < _BATCH:
                self._after = _BEFORE_ALL
                break
            self._after = found[-1]
        return {"granted": granted}
