"""Times as ranges of ids: ids are ULIDs, so the newest rows of a table are those with the greatest ids."""

from __future__ import annotations

from uuid import UUID

_RANDOM_BITS = 80
_MAX_MS = (1 << 48) - 1
# An id is made shortly before its row (the process waits for locks, or asks again) and by a clock that may be off a
# little: what is created within a time has its id within that time widened by these. The row has the exact time.
_BEFORE_MS = 60_000
_AFTER_MS = 5_000

END = UUID(int=(1 << 128) - 1)


def first_id(since_ms: int | None) -> UUID:
    """No row created at or after this time has a lower id."""
    return UUID(int=0) if since_ms is None else _id_at(since_ms - _BEFORE_MS)


def end_id(until_ms: int | None) -> UUID:
    """Every row created before this time has a lower id."""
    return END if until_ms is None else _id_at(until_ms + _AFTER_MS)


def _id_at(unix_ms: int) -> UUID:
    return UUID(int=min(max(unix_ms, 0), _MAX_MS) << _RANDOM_BITS)
