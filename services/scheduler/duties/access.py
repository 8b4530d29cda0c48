"""Forgets what access leaves behind: sessions that have ended, attempts to sign in, and old lines of the audit log. Of
attempts that were only counted it tells there how many they were.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.core.store.audit import prune_audit
from services.core.store.database import Database
from services.core.store.sessions import audit_left_out, forget_sessions, forget_windows
from services.scheduler.ticker import PeriodicDuty

BATCH = 500

# Anybody may leave attempts: these are more than passwords can be looked at in a period.
_ATTEMPTS = 5_000
# Longer than what is counted of strangers is kept, until it is told in the audit log.
_LEAST_MS = 3_600_000


class ForgetAccess(PeriodicDuty):
    """The duty that removes them, one batch of each at a time."""

    name = "access"
    period_s = 30.0

    def __init__(self, database: Database, audit_days: int, window_ms: int) -> None:
        """`window_ms` is how long attempts count."""
        self._database = database
        self._audit_days = audit_days
        self._age_ms = max(window_ms, _LEAST_MS)

    async def run_once(self) -> Mapping[str, int]:
        """Remove them. Raises Unavailable."""
        async with self._database.connection() as connection:
            return {
                "left_out": await audit_left_out(connection, BATCH),
                "sessions": await forget_sessions(connection, BATCH),
                "attempts": await forget_windows(connection, self._age_ms, _ATTEMPTS),
                "audit": await prune_audit(connection, self._audit_days, BATCH),
            }
