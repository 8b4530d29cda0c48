"""Sessions of users, and the attempts to sign in, as rows. Of a secret only its SHA-256 is here."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from services.core.store.queries import queries

STRANGERS_A_MINUTE = 30
"""So many lines of the audit log can be written in a minute by those who have no user: anybody can send a request."""

# Before the number of a minute. Other keys are digests, which do not begin so.
_STRANGERS = b"unknown addresses:"


async def count_attempt(connection: asyncpg.Connection, key: bytes, window_ms: int) -> tuple[int, int]:
    """Count an attempt to sign in. How many there were in this window, and for how many ms it lasts."""
    row = await connection.fetchrow(_sql("count_attempt"), key, window_ms)
    return row["attempts"], row["left_ms"]


async def forget_attempts(connection: asyncpg.Connection, key: bytes) -> None:
    """Begin a new window: somebody has signed in."""
    await connection.execute(_sql("forget_attempts"), key)


async def audit_stranger(connection: asyncpg.Connection, who: str) -> None:
    """A line of the audit log for an attempt to sign in with an address that nobody has, told as `who`, unless this
    minute had `STRANGERS_A_MINUTE`. It costs what a line for a user does, but for a count.
    """
    await connection.execute(_sql("audit_stranger"), _STRANGERS, who, STRANGERS_A_MINUTE)


async def audit_left_out(connection: asyncpg.Connection, limit: int) -> int:
    """For up to `limit` minutes that are over, a line that says how many of such attempts have none, if any. How many
    lines.
    """
    return _count(await connection.execute(_sql("audit_left_out"), _STRANGERS, STRANGERS_A_MINUTE, limit))


async def insert_session(
    connection: asyncpg.Connection, *, id: UUID, user: UUID, secret_hash: bytes, ttl_ms: int
) -> int:
    """Store a session. When it ends, unix milliseconds."""
    return int(await connection.fetchval(_sql("insert_session"), id, user, secret_hash, ttl_ms))


async def rotate_session(
    connection: asyncpg.Connection, session: UUID, secret_hash: bytes, grace_ms: int
) -> int | None:
    """Give a session another secret; the one before passes for `grace_ms`. When the session ends, unix milliseconds;
    None where it is gone, or has rotated within that time.
    """
    ends: int | None = await connection.fetchval(_sql("rotate_session"), session, secret_hash, grace_ms)
    return ends


async def delete_session(connection: asyncpg.Connection, session: UUID) -> None:
    """End a session."""
    await connection.execute(_sql("delete_session"), session)


async def delete_sessions_of(connection: asyncpg.Connection, user: UUID, *, but: UUID | None = None) -> None:
    """End the sessions of a user, but one."""
    await connection.execute(_sql("delete_sessions_of"), user, but)


async def forget_sessions(connection: asyncpg.Connection, limit: int) -> int:
    """Remove up to `limit` sessions that have expired. How many went."""
    return _count(await connection.execute(_sql("forget_sessions"), limit))


async def forget_windows(connection: asyncpg.Connection, age_ms: int, limit: int) -> int:
    """Remove up to `limit` counts of attempts that are older than that. How many went."""
    return _count(await connection.execute(_sql("forget_windows"), age_ms, limit))


def _sql(name: str) -> str:
    return queries("sessions")[name]


def _count(tag: str) -> int:
    return int(tag.rsplit(" ", 1)[-1])
