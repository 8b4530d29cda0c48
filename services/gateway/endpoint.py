"""From an HTTP request to its answer, for every route alike: credentials, query, body, call, answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web
from runr.workflows.v1 import access_service_pb2

from services.core.domain.errors import (
    DomainError,
    NotFound,
    Unauthenticated,
    Unsupported,
)
from services.core.domain.event import EventLimits
from services.core.domain.named_write import name_of
from services.core.domain.safe_text import is_storable
from services.core.runtime.off_loop import SMALL_BYTES, OffLoop
from services.gateway.backends import Backends, Credentials
from services.gateway.body import read_body
from services.gateway.credentials import only_header, token_credentials
from services.gateway.fault_names import performed
from services.gateway.observe import REQUEST_TRACE
from services.gateway.representation import LEAST_BYTES, compressed, refuse_conditions, tagged
from services.gateway.route import Answer, Input, Route
from services.gateway.session import COOKIES, refuse_other_sites
from services.gateway.shape import read_query

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OK = 200
_READS = ("GET", "HEAD")
_JSON = "application/json"
_WHOAMI = "/runr.workflows.v1.AccessService/GetCaller"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request may cost: bytes of its body, events in it, and seconds for it to arrive.

    `own_url` is where the gateway itself is found.
    """

    body_bytes: int
    events_body_bytes: int
    events: EventLimits
    body_timeout_s: float = 30.0
    own_url: str = ""


def endpoint(route: Route, backends: Backends, bounds: Bounds) -> Handler:
    """The aiohttp handler of a route. Raises DomainError."""

    off_loop = OffLoop("bodies")
    public = route.public

    async def handle(request: web.Request) -> web.StreamResponse:
        credentials = credentials_of(request, public=public)
        refuse_conditions(request)
        if not public and _may_be_big(request):
            await _refuse_stranger(backends, credentials)
        found, message = await input_of(route, request, bounds, off_loop)
        timeout_s = route.timeout_s(found) if callable(route.timeout_s) else route.timeout_s

        def perform(message: Any) -> Awaitable[Any]:
            return backends.call(route.rpc, message, credentials=credentials, timeout_s=timeout_s)

        response = await performed(route, perform, message)
        answer = _answer(route, response, found)
        body = None if answer.body is None else msgspec.json.encode(answer.body)
        made = web.Response(
            status=answer.status,
            body=body,
            content_type=None if body is None else _JSON,
            headers=answer.headers,
        )
        if answer.session is not None:
            request.app[COOKIES].put(made, answer.session)
        return made if body is None else await _represented(route, request, made, len(body), off_loop)

    return handle


def _answer(route: Route, response: Any, found: Input) -> Answer:
    try:
        return route.answer(response, found)
    except DomainError as error:
        # The fault is the service's: the caller's input has passed.
        raise RuntimeError(f"the answer of {route.rpc} cannot be shown: {error}") from error


async def _represented(
    route: Route, request: web.Request, response: web.Response, size: int, off_loop: OffLoop
) -> web.Response:
    """The answer as it is sent."""
    if route.has_etag and response.status == _OK:
        response = tagged(request, response)
    is_worth_it = size >= LEAST_BYTES and not route.shows_secret
    return await compressed(request, response, off_loop) if is_worth_it else response


async def _refuse_stranger(backends: Backends, credentials: Credentials) -> None:
    """Megabytes are not read for somebody without a token. All else is the service's to judge, which asks again."""
    asking = credentials._replace(name=None)
    try:
        await backends.call(_WHOAMI, access_service_pb2.GetCallerRequest(), credentials=asking, timeout_s=10.0)
    except Unauthenticated:
        raise
    except DomainError:
        return


def _may_be_big(request: web.Request) -> bool:
    return request.can_read_body and (request.content_length is None or request.content_length > SMALL_BYTES)


async def input_of(route: Route, request: web.Request, bounds: Bounds, off_loop: OffLoop) -> tuple[Input, Any]:
    """What the request holds, and the message to the service made of it."""
    path = dict(request.match_info)
    for value in path.values():
        if not is_storable(value):
            raise NotFound("there is no such path", reason="UNKNOWN_PATH")
    query = read_query(route.query, request.query) if request.query_string else {}
    raw = b""
    if route.reads_body:
        limit = bounds.events_body_bytes if route.events_body else bounds.body_bytes
        raw = await read_body(request, max_bytes=min(limit, route.most_bytes or limit), timeout_s=bounds.body_timeout_s)

    def read() -> tuple[Input, Any]:
        body = route.body.read(raw) if route.body is not None else {}
        found = Input(path=path, query=query, body=body, raw=raw, events=bounds.events, own_url=bounds.own_url)
        return found, route.request(found)

    return read() if len(raw) <= SMALL_BYTES else await off_loop.run(len(raw), read)


def credentials_of(request: web.Request, *, public: bool = False) -> Credentials:
    """Who asks, and the name of a write that has one. Raises Malformed, Unauthenticated, PermissionDenied."""
    key = only_header(request, "Idempotency-Key") if request.method not in _READS else None
    if public:
        refuse_other_sites(request)
        if key is not None:
            # Taking a write and ignoring the key that should keep it from happening twice would be worse than refusing.
            raise Unsupported("where no token is asked for, no Idempotency-Key is taken")
        return Credentials(None, None, request[REQUEST_TRACE].traceparent)
    if key is not None:
        name_of(key)  # it goes on as it is: the service reads it, and a name may be one that is read another way again
    return token_credentials(request, name=None if key is None else key.strip())
