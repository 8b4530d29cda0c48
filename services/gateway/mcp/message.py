"""A JSON-RPC message parted into what MCP's own server reads, and the arguments of a tool as they were written.

That server decodes a message on the event loop, into objects that have forgotten how numbers were written. So it is
given the envelope alone, and that must be small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from services.core.domain.errors import DomainError, TooLarge
from services.core.domain.json_fault import MAX_DEPTH, JsonError
from services.core.domain.json_text import Raw, Reader
from services.core.runtime.off_loop import SMALL_BYTES

_AROUND_ARGUMENTS = 2
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600
_NOTIFICATION = "notifications/"
_NO_ARGUMENTS = "{}"


@dataclass(frozen=True, slots=True)
class Message:
    """`arguments` are those of a tool, or why they cannot be read."""

    envelope: bytes
    arguments: Mapping[str, Raw] | DomainError
    size: int


class NoMessage(Exception):
    """The body is no message that can be answered; `answer` is what JSON-RPC says then."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        error = {"code": code, "message": message}
        self.answer = msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})


def parted(body: bytes) -> Message:
    """The parts of a body. Raises NoMessage, and TooLarge where more than the arguments is big."""
    try:
        reader = Reader.of(body, max_depth=MAX_DEPTH + _AROUND_ARGUMENTS)
        walk = _Walk(reader)
        reader.read(lambda: reader.members(walk.member))
    except JsonError as fault:
        if len(body) > SMALL_BYTES:
            raise NoMessage(_PARSE_ERROR, f"Parse error: {fault}") from None
        _check_id(body)
        return Message(body, fault, len(body))  # the server itself says what is wrong
    envelope = walk.envelope().encode()
    if len(envelope) > SMALL_BYTES:
        raise TooLarge(
            f"without the arguments of a tool a message is limited to {SMALL_BYTES} bytes, this has {len(envelope)}",
            reason="BODY_TOO_LARGE",
        )
    _check_id(envelope)
    return Message(envelope, walk.arguments, len(body))


def _check_id(envelope: bytes) -> None:
    """Raises NoMessage for a request without an id, or with one that MCP does not allow: the SDK takes it for a
    notification, says that it was accepted, and carries nothing out.
    """
    try:
        # As leniently as the SDK reads it, and no integer is too long.
        found = json.loads(envelope.decode(), parse_int=lambda _: 0)
    except (ValueError, RecursionError):
        return  # the server itself says what is wrong
    if not isinstance(found, dict) or "method" not in found:
        return
    if "id" in found:
        if type(found["id"]) not in (int, str):
            raise NoMessage(_INVALID_REQUEST, "Invalid request: id must be a string or a whole number")
    elif not str(found["method"]).startswith(_NOTIFICATION):
        raise NoMessage(_INVALID_REQUEST, "Invalid request: without an id nothing is carried out")


class _Walk:
    """Reads a message, and remembers where in its text the arguments are."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._from = self._to = 0
        self.arguments: Mapping[str, Raw] = {}

    def member(self, name: str) -> None:
        """One member of the message."""
        if name == "params" and self._reader.opens("{"):
            self._reader.members(self._param)
        else:
            self._reader.raw()

    def _param(self, name: str) -> None:
        reader = self._reader
        if name == "arguments" and reader.opens("{"):
            self._from = reader.at
            self.arguments = reader.raw_members()
            self._to = reader.at
        else:
            reader.raw()

    def envelope(self) -> str:
        """The text with other arguments in their place: none."""
        text = self._reader.text
        return text if self._to == 0 else text[: self._from] + _NO_ARGUMENTS + text[self._to :]
