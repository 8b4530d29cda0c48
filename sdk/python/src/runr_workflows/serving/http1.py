"""HTTP/1.1 without I/O, as much as an engine request needs: the head of a request, the bytes of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from ..protocol import LowerNames, usable_request_id

MAX_HEAD_BYTES = 64 * 1024


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
        return self.headers.get("expect", "").lower() == "100-continue"


def parse_head(data: bytes) -> Head:
    """The head before the empty line. Raises HttpFault for what is ambiguous or not HTTP/1."""
    text = data.decode("latin-1")
    request_line, *lines = text.split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpFault(400, "not an HTTP/1.1 request")
    if text.count("\n") != len(lines) or text.count("\r") != len(lines):
        raise HttpFault(400, "malformed header")
    headers = LowerNames()
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or not name or name != name.strip():
            raise HttpFault(400, "malformed header")
        name = name.lower()
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if parts[2] == "HTTP/1.1" else "keep-alive" in connection
    return Head(parts[0], headers, keep_alive, _body_length(headers))


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
