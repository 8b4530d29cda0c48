"""Who may call a method: the permission in its option, the token in its metadata (engine section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from google.protobuf import descriptor_pool
from runr.workflows.v1 import options_pb2

from services.core.domain.caller import EVENTS_SEND, WORKFLOWS_MANAGE, WORKFLOWS_RUN, WORKFLOWS_VIEW, Caller
from services.core.domain.errors import PermissionDenied, Unauthenticated, Unsupported
from services.core.rpc.call_context import Authenticator

_ABILITY = {
    options_pb2.PERMISSION_WORKFLOWS_VIEW: WORKFLOWS_VIEW,
    options_pb2.PERMISSION_WORKFLOWS_MANAGE: WORKFLOWS_MANAGE,
    options_pb2.PERMISSION_WORKFLOWS_RUN: WORKFLOWS_RUN,
    options_pb2.PERMISSION_EVENTS_SEND: EVENTS_SEND,
}
_OPEN = frozenset({options_pb2.PERMISSION_PUBLIC, options_pb2.PERMISSION_PER_ITEM, options_pb2.PERMISSION_SIGNED})
_HEALTH = "/grpc.health.v1.Health/"
_REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/"
_BEARER = "bearer "


@cache
def permission_of(method: str) -> int:
    """The `Permission` of a full method name like `/runr.workflows.v1.RunService/GetRun`.

    Raises Unsupported for a method that is not in the protos or has no permission: it must not be served.
    """
    if method.startswith(_HEALTH):
        return int(options_pb2.PERMISSION_PUBLIC)
    if method.startswith(_REFLECTION):
        return int(options_pb2.PERMISSION_AUTHENTICATED)
    service_name, _, name = method.removeprefix("/").partition("/")
    try:
        service = descriptor_pool.Default().FindServiceByName(service_name)
        found = service.methods_by_name[name].GetOptions().Extensions[options_pb2.permission]
    except KeyError:
        found = options_pb2.PERMISSION_UNSPECIFIED
    if found == options_pb2.PERMISSION_UNSPECIFIED:
        raise Unsupported(f"{method} is not a method of this API")
    return int(found)


def ability_of(permission: int) -> str | None:
    """The ability that a permission asks for, like "workflows.view"; None where a known token is enough."""
    return _ABILITY.get(options_pb2.Permission.ValueType(permission))


async def identify(permission: int, metadata: Mapping[str, str | bytes], authenticator: Authenticator) -> Caller | None:
    """Who calls a method of this `permission`; None for one that is open to all. See `require`.

    Raises Unauthenticated, and what the authenticator raises.
    """
    if permission in _OPEN:
        return None
    tenant = metadata.get("x-tenant-id")
    return await authenticator.authenticate(bearer_token(metadata.get("authorization")), _text(tenant) or None)


def require(caller: Caller, permission: int) -> None:
    """Raises PermissionDenied unless the caller holds the permission."""
    ability = ability_of(permission)
    if ability is not None and ability not in caller.abilities:
        raise PermissionDenied(f"this token may not do this: it needs {ability}", metadata={"ability": ability})


def bearer_token(authorization: str | bytes | None) -> str:
    """The token of an `Authorization` value. Raises Unauthenticated."""
    text = _text(authorization)
    if text[: len(_BEARER)].lower() != _BEARER or not text[len(_BEARER) :].strip():
        raise Unauthenticated("a token is needed: Authorization: Bearer <token>")
    return text[len(_BEARER) :].strip()


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""
