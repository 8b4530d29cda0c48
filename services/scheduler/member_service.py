"""The gRPC face of members, roles and tenants: translates, and calls what does the work."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.role import ROLES
from services.core.engine.members import add_member, change_role, found_tenant, remove_member
from services.core.rpc import paging
from services.core.rpc.call_context import caller
from services.core.rpc.convert import timestamp
from services.core.rpc.id_paging import page_of
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.store.database import Database
from services.core.store.members import JoinedTenant, MemberRow, list_members, one_tenant, tenants_of


class MemberMethods:
    """Methods of AccessService."""

    def __init__(self, database: Database, ids: UlidFactory) -> None:
        self._database = database
        self._ids = ids

    async def ListMembers(self, request: pb.ListMembersRequest, context: Any) -> pb.ListMembersResponse:
        """A page of members in the order of their joining."""

        async def read(after: UUID | None, limit: int) -> list[MemberRow]:
            async with self._database.connection() as connection:
                return await list_members(connection, caller().tenant, after=after, limit=limit)

        page, token = await page_of(request, read)
        return pb.ListMembersResponse(members=map(_member, page), next_page_token=token)

    async def AddMember(self, request: pb.AddMemberRequest, context: Any) -> pb.AddMemberResponse:
        """Makes a user a member."""
        async with self._database.transaction() as connection:
            member = await add_member(connection, caller(), self._ids, email=request.email, role=request.role)
        return pb.AddMemberResponse(member=_member(member))

    async def UpdateMember(self, request: pb.UpdateMemberRequest, context: Any) -> pb.UpdateMemberResponse:
        """Changes a role."""
        async with self._database.transaction() as connection:
            member = await change_role(connection, caller(), request.member_id, request.role)
        return pb.UpdateMemberResponse(member=_member(member))

    async def RemoveMember(self, request: pb.RemoveMemberRequest, context: Any) -> pb.RemoveMemberResponse:
        """Ends a membership."""
        async with self._database.transaction() as connection:
            await remove_member(connection, caller(), request.member_id)
        return pb.RemoveMemberResponse()

    async def ListRoles(self, request: pb.ListRolesRequest, context: Any) -> pb.ListRolesResponse:
        """The built-in roles, the highest first."""
        roles = (pb.Role(name=name, abilities=abilities) for name, abilities in ROLES.items())
        return pb.ListRolesResponse(roles=roles)

    async def ListTenants(self, request: pb.ListTenantsRequest, context: Any) -> pb.ListTenantsResponse:
        """A page of the caller's tenants by slug."""
        size = paging.page_size(request.page_size)
        position = paging.position_of(request, str)
        after, who = str(position[0]) if position else None, caller()
        async with self._database.connection() as connection:
            if who.user_id is None:
                rows = await one_tenant(connection, who.tenant)
            else:
                rows = await tenants_of(connection, ulid_uuid(who.user_id), after=after, limit=size + 1)
        page = rows[:size]
        return pb.ListTenantsResponse(
            tenants=map(_tenant, page),
            next_page_token=paging.next_token(request, [page[-1].slug]) if len(rows) > size else "",
        )

    async def CreateTenant(self, request: pb.CreateTenantRequest, context: Any) -> pb.CreateTenantResponse:
        """Makes a tenant that the caller owns."""
        async with self._database.transaction() as connection:
            made = await found_tenant(connection, caller(), self._ids, slug=request.id, name=request.name)
        return pb.CreateTenantResponse(tenant=_tenant(made))


def _member(row: MemberRow) -> pb.Member:
    return pb.Member(id=ulid_text(row.id), email=row.email, role=row.role, created_at=timestamp(row.created_ms))


def _tenant(row: JoinedTenant) -> pb.Tenant:
    return pb.Tenant(id=row.slug, name=row.name, created_at=timestamp(row.created_ms), role=row.role)
