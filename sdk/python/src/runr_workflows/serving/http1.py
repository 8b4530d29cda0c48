"""HTTP/1.1 without I/O, as much as an engine request needs: the head of a request, the bytes of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from itertools import takewhile
from typing import NamedTuple

from ..protocol import LowerNames, usable_request_id

MAX_HEAD_BYTES = 64 * 1024

_END = b"\r\n"

_Parsed = tuple[str, str, LowerNames]
"""Method, version and fields."""


class HttpFault(Exception):
    """A request that breaks HTTP; answered with `status`, then the connection is closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(NamedTuple):
    """The head of a request: header names in lower case, repeated ones joined by a comma.

    `length` of the body in bytes, None when it is sent in chunks.
    """

    method: str
    headers: LowerNames
    keep_alive: bool
    length: int | None

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        expected = self.headers.get("expect")
        return expected is not None and expected.lower() == "100-continue"


class HeadParser:
    """Parses the heads of one connection. The lines that its first two begin with alike are parsed once for all."""

    def __init__(self) -> None:
        self._first: bytes | None = None
        """The first head, until there is a second one."""
        self._is_new = True
        self._same = b""
        """What the first two began with, whole lines with their ends; and what it was parsed to."""
        self._parsed: _Parsed

    def parse(self, data: bytes) -> Head:
        """The head before the empty line. Raises HttpFault for what is ambiguous or not HTTP/1."""
        if self._same and data.startswith(self._same):
            method, version, same = self._parsed
            headers = LowerNames(same)
            _add_fields(headers, data[len(self._same) :].decode("latin-1"))
        else:
            method, version, headers = _parsed(data)
            if self._is_new:
                self._learn(data)
        connection = headers.get("connection")
        if connection is None:
            keep_alive = version == "HTTP/1.1"
        elif version == "HTTP/1.1":
            keep_alive = "close" not in connection.lower()
        else:
            keep_alive = "keep-alive" in connection.lower()
        return Head(method, headers, keep_alive, _body_length(headers))

    def _learn(self, data: bytes) -> None:
        if self._first is None:
            self._first = data
            return
        pairs = zip(self._first.split(_END), data.split(_END), strict=False)
        alike = [line for line, other in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        self._first, self._is_new = None, False
        if alike:
            self._same = _END.join((*alike, b""))
            self._parsed = _parsed(_END.join(alike))


def _parsed(data: bytes) -> _Parsed:
    text = data.decode("latin-1")
    request_line, end, fields = text.partition("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpFault(400, "not an HTTP/1.1 request")
    if "\n" in request_line or "\r" in request_line:
        raise HttpFault(400, "malformed header")
    headers = LowerNames()
    if end:
        _add_fields(headers, fields)
    return parts[0], parts[2], headers


def _add_fields(headers: LowerNames, text: str) -> None:
    lines = text.split("\r\n")
    if text.count("\n") != len(lines) - 1 or text.count("\r") != len(lines) - 1:
        raise HttpFault(400, "malformed header")
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise HttpFault(400, "malformed header")
        name = name.lower()
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value


def _body_length(headers: dict[str, str]) -> int | None:
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise HttpFault(400, "ambiguous body length")
        return None
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()) or len(length) > 15:
        raise HttpFault(400, "malformed Content-Length")
    return int(length)


def parse_chunk_size(line: bytes) -> int:
    """The size in the line before a chunk. Raises HttpFault."""
    digits = line.split(b";", 1)[0].strip(b" \t")
    if not digits or len(digits) > 12 or digits.strip(b"0123456789abcdefABCDEF"):
        raise HttpFault(400, "malformed chunk")
    return int(digits, 16)


def answer(status: int, body: bytes, request_headers: Mapping[str, str], *, keep_alive: bool) -> bytes:
    """A whole JSON answer, so that it leaves in a single write."""
    head = _HEADS.get(status) or f"HTTP/1.1 {status} \r\n{_SAME_FIELD}"
    request_id = usable_request_id(request_headers)
    own = "" if request_id is None else f"X-RunR-Request-Id: {request_id}\r\n"
    close = "" if keep_alive else "Connection: close\r\n"
    return f"{head}{own}{close}Content-Length: {len(body)}\r\n\r\n".encode() + body


_SAME_FIELD = "Content-Type: application/json\r\n"
_HEADS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n{_SAME_FIELD}" for status in HTTPStatus}
_HEADS[405] += "Allow: POST\r\n"
