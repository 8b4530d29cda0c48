"""Requests of any method, filled with what hurts: ends of ranges, NUL, long and odd texts, page tokens made by hand."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from hypothesis import strategies as st
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    function_service_pb2,
    run_service_pb2,
    schedule_service_pb2,
    workflow_service_pb2,
)

from services.core.rpc.paging import next_token

SERVICES = {
    "ingest": [
        run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
        event_service_pb2.DESCRIPTOR.services_by_name["EventService"],
    ],
    "scheduler": [
        workflow_service_pb2.DESCRIPTOR.services_by_name["WorkflowService"],
        schedule_service_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
        access_service_pb2.DESCRIPTOR.services_by_name["AccessService"],
    ],
    "executor": [function_service_pb2.DESCRIPTOR.services_by_name["FunctionService"]],
}
"""The services of the API by the process that serves them."""

# These would end what the others need, or wait.
_SPARED = {"DeleteProject", "DeleteToken", "AwaitRun"}

METHODS = [
    method
    for services in SERVICES.values()
    for service in services
    for method in service.methods
    if method.name not in _SPARED and not method.server_streaming and not method.client_streaming
]

_NUMBERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(
        [
            *("a\0b", "", "x" * 300, "☃" * 3_000, "'", "%", "_", "\\", "../..", "\u202e", "{}", "null"),
            *("01M8N0M8ZY4W0AT4796VTADM07", "01m8n0m8zy4w0at4796vtadm07", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0" * 26),
            *("0001-01-01", "9999-12-31", "2026-02-30", "nats:x", "http://127.0.0.1:1/", "*/5 * * * *", "cancel"),
        ]
    ),
)
_BYTES = st.sampled_from(
    [
        *(b"", b"{}", b"null", b"[]", b"{", b"\xff\xfe", b'"x"', b"\xef\xbb\xbf{}", b"[" * 200 + b"]" * 200, b"1e400"),
        *(b'{"a":"\\u0000\\ud800"}', b'{"a":1,"a":2}', b'{"a":123456789012345678901234567890}', b'{"workflows":[]}'),
    ]
)
_SECONDS = [0, 1, -1, 2**63 - 1, -(2**63), 253_402_300_799, 253_402_300_800, -62_135_596_800, -62_135_596_801]
_NANOS = [0, 1, -1, 999_999_999, 1_000_000_000, 2**31 - 1, -(2**31)]


@st.composite
def hostile_requests(
    draw: st.DrawFn, methods: Sequence[MethodDescriptor], known: Mapping[str, Any]
) -> tuple[MethodDescriptor, Any]:
    """A method and a request for it. `known`: values by field name that are there, without which little is reached."""
    method = draw(st.sampled_from(methods))
    request = message_factory.GetMessageClass(method.input_type)()
    # A request in which one or two things are odd gets further than one in which all are.
    _Filler(draw, known, odd=draw(st.sampled_from([0.1, 0.3, 0.9]))).fill(request, 0)
    if "page_token" in method.input_type.fields_by_name and draw(st.booleans()):
        position = draw(st.lists(_TEXTS | st.integers(-(2**70), 2**70) | st.just("\ud800"), min_size=1, max_size=2))
        request.page_token = _page_token(request, position)
    return method, request


def _page_token(request: Any, position: list[str | int]) -> str:
    """A token for the request's own filter, as anybody could make it; JSON's escapes hold what no text can."""
    own = next_token(request, [])
    digest, _ = json.loads(base64.urlsafe_b64decode(own + "=" * (-len(own) % 4)))
    return base64.urlsafe_b64encode(json.dumps([digest, position]).encode()).decode().rstrip("=")


class _Filler:
    """Fills a message: a field that is known with what is there, any field with something odd, or not at all."""

    def __init__(self, draw: st.DrawFn, known: Mapping[str, Any], *, odd: float) -> None:
        self._draw = draw
        self._known = known
        self._odd = odd

    def fill(self, message: Any, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            odd = self._draw(st.floats(0, 1)) < self._odd
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                if depth < 4 and (odd or field.name in self._known):
                    self._fill_inner(message, field, depth)
            elif odd:
                self._set(message, field, _values(field))
            elif field.name in self._known and _is_text(field) == isinstance(self._known[field.name], str):
                self._set(message, field, st.just(self._known[field.name]))

    def _fill_inner(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        if field.is_repeated:
            for _ in range(self._draw(st.integers(0, 2))):
                self.fill(getattr(message, field.name).add(), depth + 1)
            return
        inner = getattr(message, field.name)
        inner.SetInParent()
        if "nanos" in inner.DESCRIPTOR.fields_by_name:
            inner.seconds = self._draw(st.sampled_from(_SECONDS) | st.integers(-(2**40), 2**40))
            inner.nanos = self._draw(st.just(0) | st.just(0) | st.sampled_from(_NANOS))
        else:
            self.fill(inner, depth + 1)

    def _set(self, message: Any, field: FieldDescriptor, values: st.SearchStrategy[Any]) -> None:
        if field.is_repeated:
            getattr(message, field.name).extend(self._draw(st.lists(values, max_size=3)))
        else:
            setattr(message, field.name, self._draw(values))


def _is_text(field: FieldDescriptor) -> bool:
    """Fields of one name may be texts here and numbers there."""
    return bool(field.type == FieldDescriptor.TYPE_STRING)


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return _TEXTS
    if field.type == FieldDescriptor.TYPE_BYTES:
        return _BYTES
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_ENUM:
        numbers = [value.number for value in field.enum_type.values]
        return st.sampled_from([*numbers, 99, -1, 2**31 - 1])
    low, high = _NUMBERS[field.type]
    return st.sampled_from([value for value in (0, 1, -1, low, high) if low <= value <= high]) | st.integers(low, high)
