"""Routes of members, roles and tenants (engine section 3)."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import access_service_pb2 as pb

from services.gateway.kinds import PAGE, text
from services.gateway.route import Answer, Input, Route
from services.gateway.shape import Field, Shape
from services.gateway.views.access import (
    MemberView,
    RoleView,
    TenantView,
    member_view,
    role_view,
    tenant_view,
)
from services.gateway.views.json_parts import Page, page

_SERVICE = "/runr.workflows.v1.AccessService/"
_ROLE = Field("role", text(40), required=True)


def _members_request(found: Input) -> pb.ListMembersRequest:
    return pb.ListMembersRequest(page_size=found.query.get("limit", 0), page_token=found.query.get("cursor", ""))


def _members_answer(response: Any, _: Input) -> Answer:
    return Answer(page([member_view(member) for member in response.members], response.next_page_token))


def _tenants_request(found: Input) -> pb.ListTenantsRequest:
    return pb.ListTenantsRequest(page_size=found.query.get("limit", 0), page_token=found.query.get("cursor", ""))


def _tenants_answer(response: Any, _: Input) -> Answer:
    return Answer(page([tenant_view(tenant) for tenant in response.tenants], response.next_page_token))


def _member_answer(response: Any, _: Input) -> Answer:
    return Answer(member_view(response.member))


ROUTES = (
    Route(
        method="GET",
        path="/members",
        rpc=_SERVICE + "ListMembers",
        summary="List members",
        request=_members_request,
        answer=_members_answer,
        view=Page[MemberView],
        has_etag=True,
        query=PAGE,
    ),
    Route(
        method="POST",
        path="/members",
        rpc=_SERVICE + "AddMember",
        summary="Make a user of the installation a member",
        request=lambda found: pb.AddMemberRequest(email=found.body["email"], role=found.body["role"]),
        answer=lambda response, _: Answer(member_view(response.member), status=201),
        view=MemberView,
        statuses=(201,),
        body=Shape((Field("email", text(254), required=True), _ROLE)),
    ),
    Route(
        method="PATCH",
        path="/members/{member_id}",
        rpc=_SERVICE + "UpdateMember",
        summary="Change a member's role",
        request=lambda found: pb.UpdateMemberRequest(member_id=found.path["member_id"], role=found.body["role"]),
        answer=_member_answer,
        view=MemberView,
        body=Shape((_ROLE,)),
    ),
    Route(
        method="DELETE",
        path="/members/{member_id}",
        rpc=_SERVICE + "RemoveMember",
        summary="Remove a member, and take the member's tokens back",
        request=lambda found: pb.RemoveMemberRequest(member_id=found.path["member_id"]),
        answer=lambda _response, _: Answer(None, status=204),
        view=None,
        statuses=(204,),
    ),
    Route(
        method="GET",
        path="/roles",
        rpc=_SERVICE + "ListRoles",
        summary="The built-in roles",
        request=lambda _: pb.ListRolesRequest(),
        answer=lambda response, _: Answer(page([role_view(role) for role in response.roles], "")),
        view=Page[RoleView],
        has_etag=True,
    ),
    Route(
        method="GET",
        path="/tenants",
        rpc=_SERVICE + "ListTenants",
        summary="List the caller's tenants",
        request=_tenants_request,
        answer=_tenants_answer,
        view=Page[TenantView],
        has_etag=True,
        query=PAGE,
    ),
    Route(
        method="POST",
        path="/tenants",
        rpc=_SERVICE + "CreateTenant",
        summary="Make a tenant that the caller, a user, owns",
        request=lambda found: pb.CreateTenantRequest(id=found.body["id"], name=found.body.get("name", "")),
        answer=lambda response, _: Answer(tenant_view(response.tenant), status=201),
        view=TenantView,
        statuses=(201,),
        body=Shape((Field("id", text(63), required=True), Field("name", text(200)))),
    ),
)
