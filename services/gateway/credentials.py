"""Who asks, as a request's headers say: the token, one of its tenants, and the trace."""

from __future__ import annotations

import re

from aiohttp import web

from services.core.domain.errors import Malformed, PermissionDenied, Unauthenticated
from services.core.rpc.authorize import bearer_token
from services.gateway.backends import Credentials
from services.gateway.observe import REQUEST_TRACE
from services.gateway.session import COOKIES

_TOKEN = re.compile(r"[\x21-\x7e]{1,1024}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def token_credentials(request: web.Request, name: str | None = None) -> Credentials:
    """What a request that needs a token is made with: the header's, or that of the session in the cookie. `name` is the
    write's. Raises Malformed, Unauthenticated, PermissionDenied.
    """
    authorization = only_header(request, "Authorization")
    session = request.app[COOKIES].secret_of(request) if authorization is None else None
    token = bearer_token(authorization) if session is None else session
    if not _TOKEN.fullmatch(token):
        raise Unauthenticated("this token is not known")
    tenant = only_header(request, "X-Tenant-ID")
    if tenant is not None and not _TENANT.fullmatch(tenant):
        raise PermissionDenied("you are not a member of the tenant that X-Tenant-ID names")
    return Credentials(token, tenant, request[REQUEST_TRACE].traceparent, name)


def only_header(request: web.Request, name: str) -> str | None:
    """The value of a header. Raises Malformed where it is there twice: what is in front of the gateway may have judged
    the other one.
    """
    found = request.headers.getall(name, ())
    if len(found) > 1:
        raise Malformed(f"the header {name} is there {len(found)} times", reason="HEADER_TWICE")
    return found[0] if found else None
