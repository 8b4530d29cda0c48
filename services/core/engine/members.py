"""Who is what in a tenant (engine section 4). Nobody gives more than they have, and the last owner stays."""

from __future__ import annotations

from uuid import UUID

import asyncpg

from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, NotFound, PermissionDenied
from services.core.domain.role import OWNER, ROLES, may_give, may_touch
from services.core.engine.tokens import actor_of
from services.core.engine.users import email_faults, email_key
from services.core.runtime.ids import UlidFactory, ulid_uuid
from services.core.store.access import create_tenant, find_tenant, revoke_tokens_of, write_audit
from services.core.store.members import (
    JoinedTenant,
    MemberRow,
    delete_member,
    find_user,
    get_member,
    hold_tenant,
    hold_user,
    insert_member,
    other_owners,
    owned_tenants,
    set_role,
    tenants_of,
)

MOST_OWNED_TENANTS = 20
"""So many tenants a user may own that makes one: each costs the database tables of its own."""


async def add_member(
    connection: asyncpg.Connection, caller: Caller, ids: UlidFactory, *, email: str, role: str
) -> MemberRow:
    """Make a user a member of the caller's tenant, in the caller's transaction. Raises InvalidInput, PermissionDenied,
    and Conflict for one who is a member.
    """
    faults = email_faults(email)
    if faults:
        raise InvalidInput.of_all(faults)
    _require_may_give(caller, role)
    await hold_tenant(connection, caller.tenant)
    user = await find_user(connection, email_key(email))
    if user is None:
        raise InvalidInput.of("email", f"there is no user {email}: whoever runs this installation can make one")
    member = await insert_member(connection, id=ids.new(), tenant=caller.tenant, user=user.id, role=role)
    if member is None:
        raise Conflict(f"{user.email} is a member already", reason="MEMBER_EXISTS")
    await _audit(connection, caller, "member.add", f"{member.email} {role}")
    return member


async def change_role(connection: asyncpg.Connection, caller: Caller, member_id: str, role: str) -> MemberRow:
    """Another role for a member, in the caller's transaction. Raises InvalidInput, NotFound, PermissionDenied, and
    Conflict for the last owner.
    """
    member = await _hold(connection, caller, member_id)
    _require_may_give(caller, role)
    if role != member.role:
        await _keep_an_owner(connection, caller, member)
        await set_role(connection, member.id, role)
        await _audit(connection, caller, "member.role", f"{member.email} {member.role} -> {role}")
    return await _get(connection, caller.tenant, member.id)


async def remove_member(connection: asyncpg.Connection, caller: Caller, member_id: str) -> None:
    """End a membership and take the member's tokens back, in the caller's transaction. Raises NotFound,
    PermissionDenied, and Conflict for the last owner.
    """
    member = await _hold(connection, caller, member_id)
    await _keep_an_owner(connection, caller, member)
    await delete_member(connection, member.id)
    tokens = await revoke_tokens_of(connection, caller.tenant, member.user)
    await _audit(connection, caller, "member.remove", f"{member.email} {member.role}, tokens: {tokens}")


async def found_tenant(
    connection: asyncpg.Connection, caller: Caller, ids: UlidFactory, *, slug: str, name: str
) -> JoinedTenant:
    """Make a tenant that the caller owns, in the caller's transaction. Raises InvalidInput, PermissionDenied for a
    token of the installation, Conflict for a name that is taken.
    """
    if caller.user_id is None:
        raise PermissionDenied("a tenant is made by a user, who owns it: runr admin tenant create", reason="NOT_A_USER")
    user = ulid_uuid(caller.user_id)
    await hold_user(connection, user)
    if await owned_tenants(connection, user) >= MOST_OWNED_TENANTS:
        raise Conflict(f"a user may own at most {MOST_OWNED_TENANTS} tenants", reason="TOO_MANY_TENANTS")
    tenant = await new_tenant(connection, slug, name)
    await insert_member(connection, id=ids.new(), tenant=tenant, user=user, role=OWNER)
    await write_audit(connection, tenant=tenant, actor=actor_of(caller), action="tenant.create", subject=slug)
    joined = await tenants_of(connection, user, after=None, limit=MOST_OWNED_TENANTS * 100)
    return next(each for each in joined if each.id == tenant)


async def new_tenant(connection: asyncpg.Connection, slug: str, name: str) -> int:
    """The id of a new tenant. Raises InvalidInput, Conflict for a name that is taken."""
    if not _is_slug(slug):
        raise InvalidInput.of("id", "must be 1 to 63 of a-z, 0-9 and -, not beginning with -")
    if await find_tenant(connection, slug) is not None:
        raise Conflict(f"the name {slug} is taken", reason="TENANT_EXISTS")
    return await create_tenant(connection, slug, name or slug)


async def _hold(connection: asyncpg.Connection, caller: Caller, member_id: str) -> MemberRow:
    """The member, once nobody else changes memberships and the caller may change this one."""
    try:
        id = ulid_uuid(member_id)
    except ValueError:
        raise NotFound("there is no such member") from None
    await hold_tenant(connection, caller.tenant)
    member = await _get(connection, caller.tenant, id)
    if not may_touch(caller.role, member.role):
        raise PermissionDenied(f"this is an {member.role}, and you are {caller.role}", reason="HIGHER_ROLE")
    return member


async def _get(connection: asyncpg.Connection, tenant: int, id: UUID) -> MemberRow:
    member = await get_member(connection, tenant, id)
    if member is None:
        raise NotFound("there is no such member")
    return member


async def _keep_an_owner(connection: asyncpg.Connection, caller: Caller, member: MemberRow) -> None:
    if member.role == OWNER and not await other_owners(connection, caller.tenant, member.id):
        raise Conflict(f"{member.email} is the last owner: make another one first", reason="LAST_OWNER")


def _require_may_give(caller: Caller, role: str) -> None:
    if role not in ROLES:
        raise InvalidInput.of("role", f"must be one of {', '.join(ROLES)}, not {role[:40]!r}")
    if not may_give(caller.role, caller.abilities, role):
        raise PermissionDenied(f"you may not make somebody {role}: it is more than you have", reason="HIGHER_ROLE")


async def _audit(connection: asyncpg.Connection, caller: Caller, action: str, subject: str) -> None:
    await write_audit(connection, tenant=caller.tenant, actor=actor_of(caller), action=action, subject=subject)


def _is_slug(text: str) -> bool:
    letters = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
    return 1 <= len(text) <= 63 and not text.startswith("-") and letters.issuperset(text)
