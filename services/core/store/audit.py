"""The audit log as rows: what is read of it, and what is too old (engine sections 10 and 11)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import asyncpg

from services.core.store.queries import queries

INSTALLATION = 0
"""The tenant of lines that belong to none."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One line; `at_ms` is unix milliseconds."""

    id: int
    at_ms: int
    actor: str
    action: str
    subject: str


async def write_audit_of_user(
    connection: asyncpg.Connection, user: UUID, *, actor: str, action: str, subject: str
) -> None:
    """One line in each tenant of a user; without a tenant, in the log of the installation."""
    await connection.execute(queries("access")["audit_user"], user, actor, action, subject)


async def list_audit(
    connection: asyncpg.Connection, tenant: int, *, before: int | None, action: str, limit: int
) -> list[AuditRow]:
    """Lines of a tenant, newest first, older than the line `before`, whose action begins with `action`."""
    rows = await connection.fetch(queries("access")["list_audit"], tenant, before, action, limit)
    return [AuditRow(**row) for row in rows]


async def prune_audit(connection: asyncpg.Connection, days: int, limit: int) -> int:
    """Remove up to `limit` of the oldest lines, those that are older than so many days. How many went."""
    return int(await connection.fetchval(queries("access")["prune_audit"], days, limit))
