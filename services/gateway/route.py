"""One route of the REST API: everything about it in one declaration, for routing and for the API's description.

A route is HTTP → one gRPC method → HTTP. `request` builds the method's request from what the HTTP request brought,
`answer` the HTTP answer from the method's response; both are plain functions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from runr.workflows.v1 import options_pb2

from services.core.domain.event import EventLimits
from services.core.rpc.authorize import ability_of, permission_of
from services.gateway.session import SessionChange
from services.gateway.shape import Param, Shape, Values

Perform = Callable[[Any], Awaitable[Any]]
"""Calls the route's gRPC method with a request."""


class Input(msgspec.Struct, frozen=True):
    """What an HTTP request brought, read and checked. `body` is of the route's shape; `raw` is the body as it came.

    `events` is what a request may hold of events; `own_url` is where this gateway listens.
    """

    path: Mapping[str, str]
    query: Values
    body: Values
    raw: bytes
    events: EventLimits
    own_url: str = ""


class Answer(msgspec.Struct, frozen=True):
    """A successful answer: `body` is encoded to JSON (msgspec structs; `msgspec.Raw` is spliced in as it is).

    `session` is what becomes of the browser's session.
    """

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}
    session: SessionChange | None = None


@dataclass(frozen=True, slots=True)
class RawBody:
    """What a body is that goes on as it is: its JSON schema, and an example."""

    schema: Mapping[str, Any]
    example: Any


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One Server-Sent Event. `id` empty: it is not a place to go on from. `is_last`: no other follows."""

    name: str
    id: str
    body: Any
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Events:
    """What makes a route one of Server-Sent Events: how a request goes on behind the event with an id, and how a
    message of the method becomes an event.
    """

    resume: Callable[[Any, str], Any]
    event: Callable[[Any], ServerEvent]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """`rpc` is a full method name like `/runr.workflows.v1.RunService/GetRun`.

    `body` is the shape of a JSON object, or None for a route that takes the body as it is (`raw_body`) or takes none.
    `raw` says what such a body is. `statuses` are those of successes; 204 has no body, and all others have the `view`.
    `has_etag`: who has an answer already may ask whether it is still the same.
    `view` is the type of the answer's body. `perform`, where one call is not enough, makes the calls. `timeout_s`
    bounds a call, and may depend on what the request asks for. Where there are `events`, each is what an answer is.
    `names` are those in HTTP of fields that the method calls otherwise, in which its faults are told.
    `shows_secret`: request or answer holds one that is nowhere kept; so neither is to be kept either.
    `most_bytes` is the limit of a body, where it is lower than that of all.
    """

    method: str
    path: str
    rpc: str
    summary: str
    request: Callable[[Input], Any]
    answer: Callable[[Any, Input], Answer]
    view: Any
    query: tuple[Param, ...] = ()
    body: Shape | None = None
    raw_body: bool = False
    events_body: bool = False
    perform: Callable[[Perform, Any], Awaitable[Any]] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    timeout_s: Callable[[Input], float] | float = 30.0
    statuses: tuple[int, ...] = (200,)
    raw: RawBody | None = None
    has_etag: bool = False
    events: Events | None = None
    shows_secret: bool = False
    most_bytes: int | None = None

    @property
    def permission(self) -> str | None:
        """The ability that a caller needs, None where a known token is enough or none is needed."""
        return ability_of(permission_of(self.rpc))

    @property
    def public(self) -> bool:
        """Whether no token is asked for: what the path or the body holds is the credential."""
        return permission_of(self.rpc) == options_pb2.PERMISSION_PUBLIC

    @property
    def reads_body(self) -> bool:
        """Whether the request may have a body."""
        return self.body is not None or self.raw_body
