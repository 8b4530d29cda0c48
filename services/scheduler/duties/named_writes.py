"""Forgets what callers named their writes, a day after."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.core.store.named_writes import NamedWrites

BATCH = 1_000
_PERIOD_S = 60.0
_BATCH_S = 0.05


class ForgetWrites:
    """The duty that takes old names away, a batch at a time."""

    name = "named_writes"

    def __init__(self, writes: NamedWrites) -> None:
        self._writes = writes
        self._more = False

    async def run_once(self) -> Mapping[str, int]:
        """One batch. Raises Unavailable."""
        forgotten = await self._writes.prune(BATCH)
        self._more = forgotten == BATCH
        return {"forgotten": forgotten}

    async def idle(self) -> None:
        """A short pause while there are more."""
        await asyncio.sleep(_BATCH_S if self._more else _PERIOD_S)
