"""Fields of an op, read with the rules that all ops share (protocol section 3).

`refuse` is for what makes an answer unusable, `BadField` for the fault of a workflow's author.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.errors import DomainError
from services.core.domain.json_fault import MAX_DEPTH, deeper_than
from services.core.domain.json_text import Raw
from services.core.domain.op import FunctionFault, OpError
from services.core.domain.safe_text import cut, storable, utf8_size

NAME_BYTES, MESSAGE_BYTES, STACK_BYTES = 200, 8 * 1024, 32 * 1024
_SHOWN = 100

T = TypeVar("T")
Members = dict[str, Raw]
"""The fields of an op as they stand in the answer."""


class BadField(Exception):
    """A field of the workflow author's breaks a rule. `name` becomes the name of the step's error."""

    def __init__(self, message: str, name: str = "InvalidStep") -> None:
        super().__init__(message)
        self.name = name


def value_of(op: Members, field: str) -> Any:
    """The decoded value of a field; None where it is absent."""
    member = op.get(field)
    return None if member is None else member.value


def shown(op: Members, field: str) -> str:
    """The field's value for a message: as the function wrote it, not too much of it."""
    member = op.get(field)
    if member is None:
        return "(missing)"
    return member.text if len(member.text) <= _SHOWN else member.text[:_SHOWN] + "…"


def parsed(op: Members, field: str, parse: Callable[[Any], T]) -> T | None:
    """The field as `parse` reads it, None where it is absent or null."""
    value = value_of(op, field)
    if value is None:
        return None
    try:
        return parse(value)
    except DomainError as error:
        raise BadField(f"{field} {shown(op, field)}: {error.message}") from error


def payload(op: Members, field: str, default: str, limit: int) -> str:
    """The JSON text of the field, byte for byte; `default` where it is absent."""
    member = op.get(field)
    if member is None:
        return default
    size = utf8_size(member.text)
    if size > limit:
        raise BadField(f"{field} has {size} bytes, {limit} are allowed", "TooLarge")
    if deeper_than(member.text, MAX_DEPTH):
        raise BadField(f"{field} is nested deeper than {MAX_DEPTH} levels", "TooLarge")
    return member.text


def retry_after(op: Members) -> tuple[int | None, int | None, str | None]:
    """`(delay in ms, unix ms, warning)`: at most one of the first two is set; a value that is neither is ignored."""
    value = value_of(op, "retry_after")
    if value is None:
        return None, None, None
    try:
        return parse_duration(value), None, None
    except DomainError as error:
        not_a_duration = error
    try:
        return None, parse_time(value), None
    except DomainError:
        warning = f"retry_after {shown(op, 'retry_after')} is ignored: {not_a_duration.message}"
        return None, None, cut(storable(warning), MESSAGE_BYTES)


def error_of(op: Members) -> OpError:
    """The op's error, cut to its limits; a plain text is an error with the name "Error"."""
    value = value_of(op, "error")
    if isinstance(value, str):
        value = {"message": value}
    if not isinstance(value, dict):
        refuse(f"error {shown(op, 'error')} is neither an object nor a text")
    name, message, stack = value.get("name"), value.get("message"), value.get("stack")
    return OpError(
        name=cut(storable(name), NAME_BYTES) if isinstance(name, str) and name.strip() else "Error",
        message=cut(storable(_as_text(message)), MESSAGE_BYTES),
        stack=cut(storable(stack), STACK_BYTES) if isinstance(stack, str) else None,
    )


def _as_text(message: Any) -> str:
    if message is None:
        return ""
    return message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)


def flag(op: Members, field: str) -> bool:
    """A boolean, false where it is absent or null."""
    value = value_of(op, field)
    if value is not None and not isinstance(value, bool):
        refuse(f"{field} {shown(op, field)} is not true or false")
    return bool(value)


def is_integer(value: Any) -> bool:
    """Whether a decoded value is an integer, which a boolean is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def refuse(message: str) -> NoReturn:
    """Raise the `ProtocolError` of an answer that cannot be used."""
    raise FunctionFault("ProtocolError", cut(storable(message), MESSAGE_BYTES))
