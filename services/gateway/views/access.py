"""Tokens, members, roles, tenants, sessions and the audit log in JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from runr.workflows.v1 import access_service_pb2 as pb

from services.gateway.views.json_parts import time_text


class TokenView(msgspec.Struct, kw_only=True):
    """An API token without its secret. `email` is its user's, null for a token of the installation."""

    id: str
    name: str
    abilities: list[str]
    email: str | None
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None


class NewTokenView(TokenView, kw_only=True):
    """A token that was just made; `token` is its secret, shown this once."""

    token: str


class MemberView(msgspec.Struct, kw_only=True):
    """A user in the tenant."""

    id: str
    email: str
    role: str
    created_at: str | None


class RoleView(msgspec.Struct, kw_only=True):
    """A built-in role."""

    name: str
    abilities: list[str]


class TenantView(msgspec.Struct, kw_only=True):
    """A tenant, and what the caller is there; `id` is its name in X-Tenant-ID."""

    id: str
    name: str
    role: str
    created_at: str | None


class AuditView(msgspec.Struct, kw_only=True):
    """One line of the audit log."""

    id: str
    at: str | None
    actor: str
    action: str
    subject: str


class CallerView(msgspec.Struct, kw_only=True):
    """Who calls. `email` is null for a token of the installation; `id` is the token's, or the session's. `tenant` and
    `role` are null for somebody who has signed in and is a member of none.
    """

    id: str
    session: bool
    email: str | None
    tenant: str | None
    role: str | None
    abilities: list[str]


class SessionView(msgspec.Struct, kw_only=True):
    """A session that began, or has another secret; the secret itself is in the cookie alone."""

    csrf_token: str
    expires_at: str | None


def token_view(token: pb.Token) -> TokenView:
    """A token."""
    return TokenView(**_token_fields(token))


def new_token_view(response: pb.CreateTokenResponse) -> NewTokenView:
    """A new token with its secret."""
    return NewTokenView(token=response.secret, **_token_fields(response.token))


def _token_fields(token: pb.Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "abilities": list(token.abilities),
        "email": token.email or None,
        "created_at": time_text(token, "created_at"),
        "expires_at": time_text(token, "expires_at"),
        "last_used_at": time_text(token, "last_used_at"),
    }


def member_view(member: pb.Member) -> MemberView:
    """A member."""
    return MemberView(id=member.id, email=member.email, role=member.role, created_at=time_text(member, "created_at"))


def role_view(role: pb.Role) -> RoleView:
    """A role."""
    return RoleView(name=role.name, abilities=list(role.abilities))


def tenant_view(tenant: pb.Tenant) -> TenantView:
    """A tenant."""
    return TenantView(id=tenant.id, name=tenant.name, role=tenant.role, created_at=time_text(tenant, "created_at"))


def audit_view(entry: pb.AuditEntry) -> AuditView:
    """A line of the audit log."""
    return AuditView(
        id=entry.id, at=time_text(entry, "at"), actor=entry.actor, action=entry.action, subject=entry.subject
    )


def caller_view(response: pb.GetCallerResponse) -> CallerView:
    """Who calls."""
    return CallerView(
        id=response.token_id,
        session=response.session,
        email=response.email or None,
        tenant=response.tenant or None,
        role=response.role or None,
        abilities=list(response.abilities),
    )
