"""One call of the API as a flow: requests, pauses before they are made again, and the answer."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from ..values import encode
from ..version import __version__
from .errors import ApiUnreachable, api_error, retry_after
from .settings import ClientSettings

T = TypeVar("T")

_REPEATED = (429, 503)
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LONGEST_ASKED_S = 60.0
"""Who is to wait longer is told so."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call. `is_repeatable`: made twice it does what it does made once. `wait_s`: what the engine may take longer."""

    method: str
    path: str
    body: Any = None
    query: Mapping[str, Any] | None = None
    is_repeatable: bool = False
    wait_s: float = 0.0


class Request(NamedTuple):
    """A request for the transport. One that `is_fresh` needs a connection of its own: no answer on a kept one, which
    the server may have closed, would leave open what the request did.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout_s: float
    is_fresh: bool


class Reply(NamedTuple):
    """An answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Pause(NamedTuple):
    """Seconds to wait."""

    seconds: float


class Answered(NamedTuple):
    """The status and the JSON of a success."""

    status: int
    content: Any


Flow = Generator[Request | Pause, Any, T]
"""What the transport is to do; it raises ApiUnreachable into the flow where there is no answer."""


def perform(call: Call, settings: ClientSettings) -> Flow[Answered]:
    """The answer to a call. Raises ApiError and ApiUnreachable.

    No connection, and 429, are tried again with every call; 503 and a connection that broke only with those that may be
    made twice.
    """
    request = _request(call, settings)
    for number in range(settings.retries + 1):
        is_last = number == settings.retries
        try:
            reply: Reply = yield request
        except ApiUnreachable as error:
            if is_last or (error.was_sent and not call.is_repeatable):
                raise
            yield Pause(_backoff(number))
            continue
        if reply.status < 400:
            return Answered(reply.status, _content(reply, number + 1))
        asked = retry_after(reply.headers)
        may_repeat = reply.status in _REPEATED and (call.is_repeatable or reply.status == 429)
        if is_last or not may_repeat or (asked or 0) > _LONGEST_ASKED_S:
            raise api_error(reply.status, reply.headers, reply.body, number + 1)
        yield Pause(_backoff(number) if asked is None else asked)
    raise AssertionError("the last request has answered or raised")


def segment(text: str) -> str:
    """A text as one segment of a path."""
    return quote(text, safe="")


def _request(call: Call, settings: ClientSettings) -> Request:
    headers = {
        "Authorization": f"Bearer {settings.token}",
        "Accept": "application/json",
        "User-Agent": f"runr-workflows/{__version__}",
    }
    if settings.tenant is not None:
        headers["X-Tenant-ID"] = settings.tenant
    body = None
    if call.body is not None:
        body = encode({key: value for key, value in call.body.items() if value is not None}, "the request").encode()
        headers["Content-Type"] = "application/json"
    target = f"{settings.root}/api{call.path}"
    asked = {key: value for key, value in (call.query or {}).items() if value is not None}
    if asked:
        target += f"?{urlencode(asked, doseq=True)}"
    return Request(call.method, target, headers, body, settings.timeout_s + call.wait_s, not call.is_repeatable)


def _content(reply: Reply, requests: int) -> Any:
    try:
        return json.loads(reply.body)
    except ValueError:
        raise api_error(reply.status, reply.headers, reply.body, requests) from None


def _backoff(number: int) -> float:
    longest = min(_FIRST_PAUSE_S * float(2**number), _LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1)  # noqa: S311  # spreads requests, guards nothing
