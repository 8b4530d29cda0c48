"""What was refused to callers who are known, in the audit log (engine section 4).

The first refusal of a caller and a method is a line at once. Those of the next seconds are counted, and told with the
next line: a caller that does not give up must not fill the log, nor the database.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.store.access import write_audit
from services.core.store.database import Database

log = logging.getLogger(__name__)

ACTION = "permission.denied"

_QUIET_S = 10.0
_MAX_REMEMBERED = 1_000


@dataclass(slots=True)
class _Told:
    until: float
    more: int = 0


class Denials:
    """Writes refusals down for one process."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._told: dict[tuple[int, str, str], _Told] = {}

    async def note(self, tenant: int, actor: str, subject: str) -> None:
        """Write a refusal down. The refusal stands whether or not this succeeds; that it did not is logged."""
        key, now = (tenant, actor, subject), self._clock.monotonic()
        before = self._told.pop(key, None)
        if before is not None and before.until > now:
            before.more += 1
            self._told[key] = before
            return
        while len(self._told) >= _MAX_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._told[key] = _Told(now + _QUIET_S)
        more = f" (and {before.more} more before it)" if before is not None and before.more else ""
        try:
            async with self._database.connection() as connection:
                await write_audit(connection, tenant=tenant, actor=actor, action=ACTION, subject=f"{subject}{more}")
        except Unavailable:
            log.warning("a refusal is not in the audit log: the database is away", extra={"subject": subject})
