"""Users, and what they are in which tenant, as rows (engine section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from services.core.store.queries import queries


@dataclass(frozen=True, slots=True)
class UserRow:
    """A user. `password` is its hash in PHC form, None for one who cannot sign in."""

    id: UUID
    email: str
    password: str | None
    disabled: bool

    def __repr__(self) -> str:
        return f"UserRow(id={self.id}, email={self.email!r}, disabled={self.disabled})"


@dataclass(frozen=True, slots=True)
class ListedUser:
    """A user as the operator sees it; `memberships` like `acme:owner shop:viewer`."""

    id: UUID
    email: str
    can_sign_in: bool
    disabled: bool
    memberships: str


@dataclass(frozen=True, slots=True)
class MemberRow:
    """A user in one tenant; `id` is the membership's, known in this tenant alone."""

    id: UUID
    user: UUID
    email: str
    role: str
    created_ms: int


@dataclass(frozen=True, slots=True)
class JoinedTenant:
    """A tenant and what somebody is there; `role` is empty where nobody asks for it."""

    id: int
    slug: str
    name: str
    disabled: bool
    created_ms: int
    role: str


async def hold_tenant(connection: asyncpg.Connection, tenant: int) -> None:
    """Let nobody else change the tenant's memberships until the end of the transaction."""
    await connection.execute(_sql("hold_tenant"), tenant)


async def list_tenants(connection: asyncpg.Connection, *, after: str | None, limit: int) -> list[JoinedTenant]:
    """All tenants of the installation by slug, behind `after`."""
    return [JoinedTenant(**row) for row in await connection.fetch(_sql("list_tenants"), after, limit)]


async def one_tenant(connection: asyncpg.Connection, tenant: int) -> list[JoinedTenant]:
    """A tenant, as the list of those that a token of the installation has."""
    return [JoinedTenant(**row) for row in await connection.fetch(_sql("one_tenant"), tenant)]


async def tenants_of(
    connection: asyncpg.Connection, user: UUID, *, after: str | None, limit: int
) -> list[JoinedTenant]:
    """The tenants of a user by slug, behind `after`."""
    return [JoinedTenant(**row) for row in await connection.fetch(_sql("tenants_of"), user, after, limit)]


async def owned_tenants(connection: asyncpg.Connection, user: UUID) -> int:
    """How many tenants a user owns."""
    return int(await connection.fetchval(_sql("owned_tenants"), user))


async def disable_tenant(connection: asyncpg.Connection, slug: str, *, disabled: bool) -> int | None:
    """Keep everybody out of a tenant, or let them in again. Its id, None where there is none of that name."""
    found: int | None = await connection.fetchval(_sql("disable_tenant"), slug, disabled)
    return found


async def insert_user(connection: asyncpg.Connection, *, id: UUID, email: str, key: str, password: str | None) -> bool:
    """Store a user; False where somebody has this address already."""
    return await connection.fetchval(_sql("insert_user"), id, email, key, password) is not None


async def find_user(connection: asyncpg.Connection, key: str) -> UserRow | None:
    """The user of an address in lower case."""
    return _user(await connection.fetchrow(_sql("user_by_key"), key))


async def get_user(connection: asyncpg.Connection, user: UUID) -> UserRow | None:
    """One user."""
    return _user(await connection.fetchrow(_sql("user"), user))


async def hold_user(connection: asyncpg.Connection, user: UUID) -> None:
    """Let nobody else hold the user until the end of the transaction."""
    await connection.execute(_sql("hold_user"), user)


async def list_users(connection: asyncpg.Connection, *, after: str | None, limit: int) -> list[ListedUser]:
    """All users of the installation by address, behind `after`."""
    rows = await connection.fetch(_sql("list_users"), after, limit)
    return [ListedUser(**{**row, "id": UUID(int=row["id"].int)}) for row in rows]


async def set_password(connection: asyncpg.Connection, user: UUID, password: str) -> None:
    """Another password, as a hash in PHC form."""
    await connection.execute(_sql("set_password"), user, password)


async def disable_user(connection: asyncpg.Connection, user: UUID, *, disabled: bool) -> None:
    """Keep a user out, with all tokens and sessions, or let the user in again."""
    await connection.execute(_sql("disable_user"), user, disabled)


async def insert_member(
    connection: asyncpg.Connection, *, id: UUID, tenant: int, user: UUID, role: str
) -> MemberRow | None:
    """Make a user a member; None where the user is one already."""
    if await connection.fetchval(_sql("insert_member"), id, tenant, user, role) is None:
        return None
    return await get_member(connection, tenant, id)


async def get_member(connection: asyncpg.Connection, tenant: int, id: UUID) -> MemberRow | None:
    """One member of a tenant."""
    return _member(await connection.fetchrow(_sql("member"), tenant, id))


async def find_member(connection: asyncpg.Connection, tenant: int, user: UUID) -> MemberRow | None:
    """What a user is in a tenant."""
    return _member(await connection.fetchrow(_sql("member_by_user"), tenant, user))


async def list_members(
    connection: asyncpg.Connection, tenant: int, *, after: UUID | None, limit: int
) -> list[MemberRow]:
    """Members in the order of their joining, behind `after`."""
    rows = await connection.fetch(_sql("list_members"), tenant, after, limit)
    return [found for row in rows if (found := _member(row)) is not None]


async def set_role(connection: asyncpg.Connection, member: UUID, role: str) -> None:
    """Another role."""
    await connection.execute(_sql("set_role"), member, role)


async def delete_member(connection: asyncpg.Connection, member: UUID) -> None:
    """End a membership."""
    await connection.execute(_sql("delete_member"), member)


async def other_owners(connection: asyncpg.Connection, tenant: int, member: UUID) -> int:
    """How many owners a tenant has besides this member, those who are disabled left out."""
    return int(await connection.fetchval(_sql("other_owners"), tenant, member))


def _sql(name: str) -> str:
    return queries("members")[name]


def _user(row: Any) -> UserRow | None:
    if row is None:
        return None
    return UserRow(UUID(int=row["id"].int), row["email"], row["password"], row["disabled"])


def _member(row: Any) -> MemberRow | None:
    if row is None:
        return None
    id, user = UUID(int=row["id"].int), UUID(int=row["member"].int)
    return MemberRow(id, user, row["email"], row["role"], row["created_ms"])
