"""Long work on the event loop in small pieces: between two of them everybody else has a turn."""

from __future__ import annotations

import asyncio


class LoopShare:
    """Counts work and lets the others in when `piece` of it is done. The unit is the caller's.

    if share.spent(weight):
        await share.rest()
    """

    def __init__(self, piece: int) -> None:
        self._piece = piece
        self._done = 0

    def spent(self, weight: int) -> bool:
        """Note that so much work was done. Whether it is time to rest."""
        self._done += weight
        return self._done >= self._piece

    async def rest(self) -> None:
        """Let everybody else on the loop go first, once."""
        self._done = 0
        await asyncio.sleep(0)
