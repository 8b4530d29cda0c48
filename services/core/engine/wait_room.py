"""How many waits of one event name may be under conditions that no equality finds (engine section 8).

Every event of the name is compared with each of them, so their number is what such an event costs its tenant.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.core.domain.errors import Unavailable
from services.core.domain.matching import SCAN
from services.core.domain.op import OpError
from services.core.runtime.clock import Clock, SystemClock
from services.core.store.commit_item import WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries

_KNOWN_S = 1.0
_MOST_KNOWN = 10_000
_FULL = -1


class WaitRoom:
    """Refuses waits over the limit. Between two looks, a second apart, each process counts for itself: what others open
    meanwhile may come on top.
    """

    def __init__(self, database: Database, most: int, clock: Clock | None = None) -> None:
        self._database = database
        self._most = most
        self._clock = clock or SystemClock()
        self._left: dict[tuple[int, int], tuple[float, int]] = {}
        """By tenant and hash of the name: until when it is right, and for how many more there is room."""

    async def faults(self, rows: Iterable[WaitRow]) -> dict[str, OpError]:
        """The steps among waits to open for which there is no room, with the errors to fail them with."""
        return {
            row.sid or "": self._error(row.event)
            for row in rows
            if _is_judged(row) and not await self._takes(row.tenant, row.name_h or 0)
        }

    async def _takes(self, tenant: int, name_h: int) -> bool:
        key = (tenant, name_h)
        now = self._clock.monotonic()
        until, left = self._left.get(key, (now, 0))
        if until <= now or left == 0:
            try:
                async with self._database.connection() as connection:
                    query = queries("engine")["count_scanned"]
                    left = self._most - int(await connection.fetchval(query, tenant, name_h, self._most))
            except Unavailable:
                return True  # the commit will tell
            until = now + _KNOWN_S
            if len(self._left) >= _MOST_KNOWN:
                self._left.clear()
        self._left[key] = (until, left - 1 if left > 0 else _FULL)
        return left > 0

    def _error(self, event: str | None) -> OpError:
        return OpError(
            "LimitExceeded",
            f"{self._most} waits for {event!r} or more are open under conditions that no equality finds: "
            "let the condition have a conjunct such as event.data.id == async.data.id (or use match)",
        )


def _is_judged(row: WaitRow) -> bool:
    """Whether a step waits so that each event of the name has to be compared with it."""
    return row.kind == "e" and row.cond is not None and (row.path_h, row.val_h) == SCAN
