"""Tenants, tokens and the audit log as rows (engine sections 4 and 10). Of a token only its SHA-256 is here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from services.core.store.queries import queries

BOOTSTRAP_TOKEN = UUID(int=1)
"""The id of the one token that comes from the environment."""


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant. `slug` is its name in X-Tenant-ID."""

    id: int
    slug: str
    name: str
    disabled: bool


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret; times are unix milliseconds, `expires_ms` None means never."""

    id: UUID
    name: str
    abilities: tuple[str, ...]
    created_ms: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class KnownToken:
    """Whom a token stands for. `left_ms` is what remains until it expires, None means for ever."""

    id: UUID
    tenant: int
    tenant_slug: str
    tenant_disabled: bool
    abilities: frozenset[str]
    left_ms: int | None


async def lock_bootstrap(connection: asyncpg.Connection) -> None:
    """Wait for other processes that bootstrap; held until the end of the transaction."""
    await connection.execute(queries("access")["bootstrap_lock"])


async def create_tenant(connection: asyncpg.Connection, slug: str, name: str) -> int:
    """The id of the tenant, made with its schema where it is missing."""
    return int(await connection.fetchval(queries("access")["create_tenant"], slug, name))


async def get_tenant(connection: asyncpg.Connection, tenant: int) -> TenantRow | None:
    """One tenant."""
    row = await connection.fetchrow(queries("access")["tenant"], tenant)
    return None if row is None else TenantRow(**row)


async def find_tenant(connection: asyncpg.Connection, slug: str) -> TenantRow | None:
    """The tenant of this name."""
    row = await connection.fetchrow(queries("access")["tenant_by_slug"], slug)
    return None if row is None else TenantRow(**row)


async def find_token(connection: asyncpg.Connection, token_hash: bytes) -> KnownToken | None:
    """The token of this SHA-256, unless it was revoked or has expired."""
    row = await connection.fetchrow(queries("access")["authenticate"], token_hash)
    if row is None:
        return None
    return KnownToken(
        id=UUID(int=row["id"].int),
        tenant=row["tenant"],
        tenant_slug=row["slug"],
        tenant_disabled=row["disabled"],
        abilities=frozenset(row["abilities"]),
        left_ms=row["left_ms"],
    )


async def insert_token(
    connection: asyncpg.Connection,
    *,
    id: UUID,
    tenant: int,
    name: str,
    token_hash: bytes,
    abilities: Collection[str],
    expires_ms: int | None,
) -> TokenRow | None:
    """Store a token; None, and nothing stored, when its expiry has passed already."""
    row = await connection.fetchrow(
        queries("access")["insert_token"], id, tenant, name, token_hash, sorted(abilities), expires_ms
    )
    return None if row is None else _token_row(row)


async def put_bootstrap_token(
    connection: asyncpg.Connection, tenant: int, token_hash: bytes, abilities: Collection[str]
) -> None:
    """Store the token from the environment; the one that was given before no longer works."""
    await connection.execute(
        queries("access")["put_bootstrap_token"], BOOTSTRAP_TOKEN, tenant, token_hash, sorted(abilities)
    )


async def list_tokens(connection: asyncpg.Connection, tenant: int, *, after: UUID | None, limit: int) -> list[TokenRow]:
    """Tokens that were not revoked, in the order of their making, behind `after`."""
    rows = await connection.fetch(queries("access")["list_tokens"], tenant, after, limit)
    return [_token_row(row) for row in rows]


async def revoke_token(connection: asyncpg.Connection, tenant: int, token: UUID) -> str | None:
    """Take a token back. Its name, or None when the tenant has no such token."""
    name: str | None = await connection.fetchval(queries("access")["revoke_token"], tenant, token)
    return name


async def write_audit(connection: asyncpg.Connection, *, tenant: int, actor: str, action: str, subject: str) -> None:
    """One line of the audit log, in the transaction of what it tells. Holds no secrets."""
    await connection.execute(queries("access")["audit"], tenant, actor, action, subject)


def _token_row(row: asyncpg.Record) -> TokenRow:
    return TokenRow(
        id=UUID(int=row["id"].int),
        name=row["name"],
        abilities=tuple(row["abilities"]),
        created_ms=row["created_ms"],
        expires_ms=row["expires_ms"],
    )
