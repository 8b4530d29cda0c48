"""Requests of protocol v1: their text, and the envelope they travel in (protocol sections 1 and 4).

Payloads of the user (event data, outputs, errors) arrive here as JSON text and are spliced in as they are: what a
function wrote is byte for byte what it reads again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

PROTOCOL = "v1"

_SEALED = f'{{"runr_workflow":"{PROTOCOL}","signature":'.encode()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a function learns about its run. `attempt` counts from 0; `started_at` is unix milliseconds."""

    id: str
    attempt: int
    started_at: int
    source: str
    parent_run_id: str | None = None
    test: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventInfo:
    """The trigger event: `data` is JSON text, `ts` unix milliseconds."""

    id: str
    name: str
    data: str
    ts: int


class StepsFragment:
    """The memoized steps of one run as they stand in the request, grown by one step at a time.

    An executor that holds a run's lease keeps one of these: a round appends what it stored and encodes nothing twice.
    """

    __slots__ = ("_order", "_steps", "ids", "size")

    def __init__(self) -> None:
        self._steps: list[str] = []
        self._order: list[str] = []
        self.ids: set[str] = set()
        """Ids of the memoized steps."""
        self.size = 0
        """Bytes of UTF-8 in `steps`, for the limits on memory and on memoized state (engine section 8)."""

    def completed(self, step_id: str, output: str) -> None:
        """Append a step with its output, a JSON text. A step that is already there is left as it is."""
        self._append(step_id, completed_json(output))

    def failed(self, step_id: str, error: str) -> None:
        """Append a step that failed for good with its error, the JSON text of `{name, message, stack?}`."""
        self._append(step_id, failed_json(error))

    @property
    def steps(self) -> str:
        """The members of the request's `steps` object, without its braces."""
        return _joined(self._steps)

    @property
    def order(self) -> str:
        """The elements of the request's `step_order` list, without its brackets."""
        return _joined(self._order)

    def _append(self, step_id: str, result: str) -> None:
        if step_id in self.ids:
            return
        comma = "," if self.ids else ""
        key = _text(step_id)
        member = f"{comma}{key}:{result}"
        self.ids.add(step_id)
        self._steps.append(member)
        self._order.append(comma + key)
        self.size += len(member) if member.isascii() else len(member.encode())


class RequestFrame:
    """What stays the same in all execute requests of a held run: rendered once, for a hot step pays for each byte."""

    __slots__ = ("_event", "_run", "_workflow")

    def __init__(self, *, workflow: str, run: RunInfo, event: EventInfo) -> None:
        """`run.attempt` is not part of the frame: it changes from request to request."""
        parent = "null" if run.parent_run_id is None else _text(run.parent_run_id)
        self._workflow = f',"workflow":{_text(workflow)},"run":{{"id":{_text(run.id)},"attempt":'
        self._run = (
            f',"started_at":"{_iso_utc(run.started_at)}","source":{_text(run.source)},'
            f'"replay":{_bool(run.source == "replay")},"parent_run_id":{parent},"test":{_bool(run.test)}}},'
        )
        self._event = (
            f'"event":{{"id":{_text(event.id)},"name":{_text(event.name)},"data":{event.data},"ts":{event.ts}}},'
        )

    def request(
        self,
        *,
        attempt: int,
        steps_fragment: str,
        order_fragment: str,
        ts: int,
        max_ops: int | None = None,
        budget_ms: int | None = None,
    ) -> str:
        """The text of an execute request (protocol section 4). `ts` is unix seconds.

        `steps_fragment` and `order_fragment` come from a `StepsFragment`. `max_ops` and `budget_ms` are left out where
        they are None: the function then answers exactly one op.
        """
        optional = ("" if max_ops is None else f',"max_ops":{max_ops}') + (
            "" if budget_ms is None else f',"budget_ms":{budget_ms}'
        )
        return (
            f'{{"type":"execute","protocol":"{PROTOCOL}","ts":{ts}{self._workflow}{attempt}{self._run}{self._event}'
            f'"steps":{{{steps_fragment}}},"step_order":[{order_fragment}]{optional}}}'
        )


def execute_request(*, workflow: str, run: RunInfo, event: EventInfo, **fields: Any) -> str:
    """The text of one execute request; `fields` as in `RequestFrame.request`."""
    return RequestFrame(workflow=workflow, run=run, event=event).request(attempt=run.attempt, **fields)


def introspect_request(ts: int) -> str:
    """The text of an introspect request. `ts` is unix seconds."""
    return f'{{"type":"introspect","protocol":"{PROTOCOL}","ts":{ts}}}'


def seal(request_text: str, signature_header: str) -> bytes:
    """The body to post: the request as a JSON string, so that the signed bytes survive a runtime that re-encodes."""
    signature, request = msgspec.json.encode(signature_header), msgspec.json.encode(request_text)
    return b"".join((_SEALED, signature, b',"request":', request, b"}"))


def completed_json(output: str) -> str:
    """A memoized step as a request carries it, with its output, a JSON text."""
    return f'{{"status":"completed","output":{output}}}'


def failed_json(error: str) -> str:
    """A step that failed for good as a request carries it, with the JSON text of its error."""
    return f'{{"status":"failed","error":{error}}}'


def error_json(name: str, message: str, stack: str | None = None) -> str:
    """The JSON text of an error as a request carries it: `{"name","message","stack"?}`."""
    last = "" if stack is None else f',"stack":{_text(stack)}'
    return f'{{"name":{_text(name)},"message":{_text(message)}{last}}}'


def _joined(parts: list[str]) -> str:
    """The parts as one text; kept joined, so that the next round copies it once and does not walk the parts again."""
    if len(parts) != 1:
        parts[:] = ["".join(parts)]
    return parts[0]


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _iso_utc(ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
