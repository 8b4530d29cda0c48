"""Tenants and tokens as rows, and lines of the audit log (engine sections 4 and 10). Of a token only its SHA-256 is
here.
"""

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
    """A token without its secret; times are unix milliseconds, `expires_ms` None means never. `email` is its user's,
    empty for a token of the installation; `used_ms` is to the minute.
    """

    id: UUID
    name: str
    abilities: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    used_ms: int | None = None
    email: str = ""


@dataclass(frozen=True, slots=True)
class KnownToken:
    """Whom a token, or a session, stands for, and in which tenant.

    `left_ms` is what remains until it expires, None means for ever. `abilities` None: all that the role holds.
    `home` is a token's own tenant. `place` None: the caller has no tenant, or none of the name that was asked for.
    `stale`: that it was used should be written down.
    """

    id: UUID
    left_ms: int | None
    abilities: frozenset[str] | None
    signed_in: bool
    stale: bool
    home: int | None
    user: UUID | None
    email: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class Place:
    """A tenant, and what the caller is there."""

    tenant: int
    disabled: bool
    role: str


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token that is about to be taken back. `role` is its user's, an owner's for a token of the installation."""

    name: str
    user: UUID | None
    role: str


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


async def find_token(connection: asyncpg.Connection, token_hash: bytes, tenant: str | None) -> KnownToken | None:
    """The token or session of this SHA-256, unless it was taken back or has expired, or its user was disabled; in the
    tenant of that slug, or in its own.
    """
    row = await connection.fetchrow(queries("access")["authenticate"], token_hash, tenant)
    if row is None:
        return None
    place = None if row["tenant"] is None else Place(row["tenant"], row["disabled"], row["role"])
    return KnownToken(
        id=UUID(int=row["id"].int),
        left_ms=row["left_ms"],
        abilities=None if row["abilities"] is None else frozenset(row["abilities"]),
        signed_in=row["signed_in"],
        stale=row["stale"],
        home=row["home"],
        user=None if row["member"] is None else UUID(int=row["member"].int),
        email=row["email"],
        place=place,
    )


async def touch_token(connection: asyncpg.Connection, token: UUID) -> None:
    """Write down that a token was used, to the minute."""
    await connection.execute(queries("access")["touch_token"], token)


async def insert_token(
    connection: asyncpg.Connection,
    *,
    id: UUID,
    tenant: int,
    name: str,
    token_hash: bytes,
    abilities: Collection[str],
    expires_ms: int | None,
    user: UUID | None = None,
) -> TokenRow | None:
    """Store a token, of a user or of the installation; None, and nothing stored, when its expiry has passed already."""
    row = await connection.fetchrow(
        queries("access")["insert_token"], id, tenant, name, token_hash, sorted(abilities), expires_ms, user
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


async def hold_token(connection: asyncpg.Connection, tenant: int, token: UUID) -> HeldToken | None:
    """A token of the tenant that still works, held until the end of the transaction."""
    row = await connection.fetchrow(queries("access")["hold_token"], tenant, token)
    if row is None:
        return None
    return HeldToken(row["name"], None if row["member"] is None else UUID(int=row["member"].int), row["role"])


async def revoke_tokens_of(connection: asyncpg.Connection, tenant: int, user: UUID) -> int:
    """Take all tokens back that a user has in a tenant. How many there were."""
    return len(await connection.fetch(queries("access")["revoke_tokens_of"], tenant, user))


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
        used_ms=row["used_ms"],
        email=row["email"],
    )
