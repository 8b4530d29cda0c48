"""Protocol v1 without I/O: envelope, requests, answers (protocol sections 1, 2 and 4)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .errors import SettingsError
from .event import Event
from .refusal import BadRequest, BodyTooLarge, RequestRefused
from .signature import verify
from .values import encode
from .version import __version__

__all__ = ["MAX_BODY_BYTES", "ExecuteRequest", "IntrospectRequest", "RequestRefused", "open_envelope", "parse_request"]

VERSION = "v1"
VERSION_VARIABLE = "RUNR_WORKFLOW_PROTOCOL"
MAX_BODY_BYTES = 64 * 1024 * 1024
SIGNATURE_HEADER = "x-runr-signature"
REQUEST_ID_HEADER = "x-runr-request-id"
CAPABILITIES = ["dry", "max_ops"]
SDK = {"name": "runr-workflows", "language": "python", "version": __version__}

_DECODER = json.JSONDecoder()
_REQUEST_ID = re.compile(r"[0-9A-Za-z._~+/=-]{1,128}")


def check_version(environ: Mapping[str, str]) -> None:
    """Raises SettingsError when the platform has set RUNR_WORKFLOW_PROTOCOL to what this SDK does not speak."""
    given = environ.get(VERSION_VARIABLE, "")
    if given not in ("", VERSION):
        raise SettingsError(
            f"{VERSION_VARIABLE} is {given!r:.100}, and this SDK ({__version__}) speaks {VERSION} only:"
            f" install the SDK for that protocol, or set the variable to {VERSION}"
        )


@dataclass(frozen=True, slots=True)
class IntrospectRequest:
    """The engine asks which workflows are served."""


@dataclass(slots=True, kw_only=True)
class ExecuteRequest:
    """The engine asks for the next op of a run, or for up to `max_ops` of them, of steps that begin within `budget_ms`;
    with `dry`, for what that op would be.

    Fields of the request that this SDK does not know are ignored.
    """

    workflow: str
    run_id: str
    attempt: int
    source: str
    started_at: str | None
    parent_run_id: str | None
    replay: bool
    test: bool
    event: Event[Any]
    steps: Mapping[str, Mapping[str, Any]]
    max_ops: int = 1
    budget_ms: int | None = None
    dry: bool = False


def open_envelope(body: bytes, header: str | None, keys: Sequence[str], now: float) -> str:
    """The verified request text of a body.

    `header` is the value of X-RunR-Signature or None, `now` unix seconds. Raises RequestRefused, whose `status` is
    400 (not a v1 envelope), 401 (signature), 413 (too large) or 500 (no key).
    """
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(f"the body has {len(body)} bytes, the limit is {MAX_BODY_BYTES}")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    envelope = _json(text)
    if not isinstance(envelope, dict) or envelope.get("runr_workflow") != VERSION:
        raise BadRequest(f"the body is not a {VERSION} envelope")
    request, signature = envelope.get("request"), envelope.get("signature")
    if not isinstance(request, str):
        raise BadRequest("the envelope's request is not a string")
    if signature is not None and not isinstance(signature, str):
        raise BadRequest("the envelope's signature is not a string")
    verify(header=header, envelope=signature, keys=keys, request=request, now=now)
    return request


def parse_request(text: str) -> IntrospectRequest | ExecuteRequest:
    """The request in a verified envelope. Raises BadRequest."""
    request = _json(text)
    if not isinstance(request, dict):
        raise BadRequest("the request is not an object")
    if request.get("protocol", VERSION) != VERSION:
        raise BadRequest(f"the request has the protocol {request['protocol']!r:.50}, this SDK speaks {VERSION}")
    kind = request.get("type")
    if kind == "introspect":
        return IntrospectRequest()
    if kind == "execute":
        return _execute(request)
    raise BadRequest(f"the request type {kind!r:.50} is not known")


def introspect_answer(definitions: Sequence[Mapping[str, Any]]) -> bytes:
    """The body that answers an introspect request."""
    answer = {"runr_workflow": VERSION, "sdk": SDK, "capabilities": CAPABILITIES, "workflows": list(definitions)}
    return encode(answer).encode()


def ops_answer(ops: str, asked_at: float | None = None) -> bytes:
    """The body that answers an execute request; `ops` is the JSON of one op, or of several with commas between them.
    `asked_at`: when the sleep among them was asked for, in unix milliseconds.
    """
    if asked_at is not None:
        return f'{{"runr_workflow":"{VERSION}","asked_at":{asked_at:.3f},"ops":[{ops}]}}'.encode()
    return f'{{"runr_workflow":"{VERSION}","ops":[{ops}]}}'.encode()


def dry_answer(op: str, called: str) -> bytes:
    """The body that answers a dry request; `called` is the JSON of the list of memoized steps that were called."""
    return f'{{"runr_workflow":"{VERSION}","ops":[{op}],"called":{called}}}'.encode()


def error_answer(message: str) -> bytes:
    """The body of every answer that is not 200."""
    return json.dumps({"error": message}).encode()


class LowerNames(dict[str, str]):
    """Headers whose names are in lower case."""


def lower_names(headers: Mapping[str, str]) -> LowerNames:
    """Headers by their names in lower case, whatever those were; of repeated ones the first."""
    if type(headers) is LowerNames:
        return headers
    named = LowerNames()
    for name, value in headers.items():
        named.setdefault(name.lower(), value)
    return named


def answer_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of the answer to a request with these headers, whatever its status.

    The engine keeps a connection only if each answer on it repeats the id of its request (protocol section 1).
    """
    request_id = usable_request_id(headers)
    if request_id is None:
        return {"Content-Type": "application/json"}
    return {"Content-Type": "application/json", "X-RunR-Request-Id": request_id}


def usable_request_id(headers: Mapping[str, str]) -> str | None:
    """The id of the request with these headers, as its answer repeats it; None without one that may be repeated."""
    request_id = lower_names(headers).get(REQUEST_ID_HEADER)
    return request_id if request_id is not None and _REQUEST_ID.fullmatch(request_id) else None


def _execute(request: dict[str, Any]) -> ExecuteRequest:
    run = _field(request, "run", dict)
    steps = _field(request, "steps", dict)
    event = _field(request, "event", dict)
    for step in steps.values():
        if type(step) is not dict:
            raise BadRequest("the request's steps are not objects")
    attempt = run.get("attempt", 0)
    if not isinstance(attempt, int) or isinstance(attempt, bool):
        raise BadRequest("run.attempt is not an integer")
    return ExecuteRequest(
        workflow=_field(request, "workflow", str),
        run_id=_field(run, "id", str),
        attempt=attempt,
        source=str(run.get("source") or "api"),
        started_at=run.get("started_at"),
        parent_run_id=run.get("parent_run_id"),
        replay=run.get("replay") is True,
        test=run.get("test") is True,
        event=cast("Event[Any]", event),
        steps=steps,
        max_ops=(_count(request, "max_ops") or 1) if "max_ops" in request else 1,
        budget_ms=_count(request, "budget_ms") if "budget_ms" in request else None,
        dry=request.get("dry") is True,
    )


def _count(request: dict[str, Any], name: str) -> int | None:
    """An optional positive integer; what is none is as good as absent."""
    value = request.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _field(holder: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = holder.get(name)
    if not isinstance(value, kind):
        raise BadRequest(f"the request's {name} is missing or not {'an object' if kind is dict else 'a string'}")
    return value


def _json(text: str) -> Any:
    # As `json.loads`, which looks for blanks with expressions.
    text = text.strip(" \t\n\r")
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        end = -1
    if end != len(text):
        raise BadRequest("the body is not JSON")
    return value
