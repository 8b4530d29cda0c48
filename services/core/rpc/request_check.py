"""What no request may hold, whatever its method: judged once, where calls come in (engine section 3).

Texts of requests end in columns and conditions of Postgres, which hold no NUL; a lone surrogate is none that a message
can carry. What a field allows beyond that is said where its meaning is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from services.core.domain.errors import FieldError, InvalidInput, Malformed

MAX_TEXT = 65_536
"""Characters of a text: more than any field allows."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands for a request whose bytes are no message of its type."""

    fault: str


def deserializer(inner: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`inner`, but its error is told as the caller's, by `check_request`, and not as one of the engine."""

    def deserialize(data: bytes) -> Any:
        try:
            return inner(data)
        except DecodeError as error:
            return Undecodable(str(error))

    return deserialize


def check_request(request: Any) -> None:
    """Raises Malformed for bytes that are no message, InvalidInput with every text that no field may hold."""
    if isinstance(request, Undecodable):
        raise Malformed(f"the request is no message of this method: {request.fault[:200]}")
    data = request.SerializeToString()
    if len(data) <= MAX_TEXT and b"\0" not in data:
        return  # then no text in it has one, or is too long
    faults = list(_faults(request, ""))
    if faults:
        raise InvalidInput.of_all(faults)


def _faults(message: Any, path: str) -> Iterator[FieldError]:
    for field, value in message.ListFields():
        kind = field.type
        if kind not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE):
            continue
        inner = f"{path}{field.name}"
        if not field.is_repeated:
            yield from _fault_of(value, kind, inner)
            continue
        for place, item in enumerate(value):
            yield from _fault_of(item, kind, f"{inner}[{place}]")


def _fault_of(value: Any, kind: int, path: str) -> Iterator[FieldError]:
    if kind == FieldDescriptor.TYPE_MESSAGE:
        yield from _faults(value, f"{path}.")
    elif "\0" in value:
        yield FieldError(path, "must hold no NUL")
    elif len(value) > MAX_TEXT:
        yield FieldError(path, f"must have at most {MAX_TEXT} characters, it has {len(value)}")
