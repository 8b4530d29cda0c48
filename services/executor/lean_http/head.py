"""The head of an answer: status line and fields (RFC 9112). Pure.

Strict, because the length of the body hangs on it: what two readers could take for two different lengths is refused,
never repaired. Folded fields, long obsolete, are refused too, as Node's parser refuses them.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from services.executor.lean_http.errors import BadAnswer

MAX_HEAD_BYTES = 64 * 1024
"""The heads of an answer together with its interim ones, and its trailers."""

_MAX_FIELDS = 256
_MAX_KNOWN = 256
_MAX_KNOWN_BYTES = 1024
_SHOWN_BYTES = 60

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]"
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: " + _TEXT + rb"*+)?\r\n")
_FIELD_LINE = _TOKEN + rb"++:" + _TEXT + rb"*+\r\n"
_FIELD_LINES = re.compile(rb"(?:" + _FIELD_LINE + rb")*+")
_BARE_LF = re.compile(rb"(?<!\r)\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_KEEP_ALIVE_TIMEOUT = re.compile(rb"(?i)(?:^|[,\s])timeout=([0-9]{1,6})")
_BEGINNING = b"HTTP/1."


class Head(NamedTuple):
    """A head and what it says about the body.

    `framing` says where the body ends: after `length` bytes, with the last chunk, or with the connection. `persists`:
    whether the server would take another request on this connection; `idle_s`: how long it says that it waits for one.
    """

    status: int
    framing: Literal["length", "chunked", "close"]
    length: int
    persists: bool
    encoding: bytes
    request_id: bytes | None
    idle_s: int | None


class KnownHeads:
    """Reads heads, and remembers what they said: those of one server differ in little but the id of the request, which
    is left out of what is compared.
    """

    def __init__(self, id_field: bytes, place: bytes) -> None:
        """`id_field` is the lower-case name of the field of the id. `place` stands for the id of the request in what is
        read: a secret, so that no server can write it.
        """
        self.place = place
        self._id_field = id_field
        self._known: dict[tuple[bytes, bytes], Head] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._known)

    def read(self, request_id: bytes, data: bytes) -> Head:
        """As `parse_head`; `place` for a `request_id` that is the one given. Raises BadAnswer."""
        before, found, after = data.partition(request_id)
        if not found or len(data) > _MAX_KNOWN_BYTES:
            return parse_head(data, self._id_field)
        head = self._known.get((before, after))
        if head is None:
            head = parse_head(before + self.place + after, self._id_field)
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[before, after] = head
        return head


def parse_head(data: bytes, id_field: bytes) -> Head:
    """The head in `data`, which ends with the empty line. `id_field` is the lower-case name of the field of the id.

    Raises BadAnswer.
    """
    status_line = _STATUS_LINE.match(data)
    if status_line is None:
        raise BadAnswer(f"no status line of HTTP/1.1: {shown(data)}")
    fields = _parse_fields(data, status_line.end())
    status = int(status_line[2])
    is_1_1 = status_line[1] == b"1"
    framing, length = _framing(fields, status, is_1_1)
    timeout = _KEEP_ALIVE_TIMEOUT.search(fields.get(b"keep-alive", b""))
    return Head(
        status=status,
        framing=framing,
        length=length,
        persists=is_1_1 and framing != "close" and not _says_close(fields),
        encoding=fields.get(b"content-encoding", b"").lower(),
        request_id=fields.get(id_field),
        idle_s=None if timeout is None else int(timeout[1]),
    )


def check_beginning(data: bytes | bytearray, start: int) -> None:
    """Raise BadAnswer if a head that is not complete cannot become one; new since the last time is data[start:]."""
    if not data.startswith(_BEGINNING) and not _BEGINNING.startswith(data):
        raise BadAnswer(f"no status line of HTTP/1.1: {shown(data)}")
    if _BARE_LF.search(data, start):
        raise BadAnswer("a line of the head ends without CR")


def check_trailer(line: bytes) -> None:
    """Raise BadAnswer for a line of a trailer, with its CRLF, that is no field."""
    if not _FIELD_LINES.fullmatch(line):
        raise BadAnswer(f"a malformed trailer: {shown(line)}")


def begins_answer(data: bytes) -> bool:
    """Whether these bytes are the beginning of an answer, as far as they go."""
    return data.startswith(_BEGINNING) or _BEGINNING.startswith(data)


def shown(data: bytes | bytearray) -> str:
    """The beginning of some bytes, for a message."""
    return ascii(bytes(data[:_SHOWN_BYTES]).decode("latin-1"))


def _parse_fields(data: bytes, start: int) -> dict[bytes, bytes]:
    """Names in lower case; the values of a repeated one joined by commas, as the RFC reads them."""
    end = len(data) - 2
    matched = _FIELD_LINES.match(data, start, end)
    if matched is None or matched.end() != end:
        raise BadAnswer(f"a malformed field: {shown(data[matched.end() if matched else start :])}")
    lines = data[start:end].split(b"\r\n")
    lines.pop()  # what is behind the last CRLF: nothing
    if len(lines) > _MAX_FIELDS:
        raise BadAnswer(f"the head has {len(lines)} fields, {_MAX_FIELDS} are allowed")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        fields[name] = fields[name] + b", " + value if name in fields else value
    return fields


def _framing(
    fields: dict[bytes, bytes], status: int, is_1_1: bool
) -> tuple[Literal["length", "chunked", "close"], int]:
    coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if coding is not None:
        if length is not None:
            raise BadAnswer("the answer has a Content-Length and a Transfer-Encoding")
        if coding.lower() != b"chunked" or not is_1_1:
            raise BadAnswer(f"the answer has the Transfer-Encoding {shown(coding)}")
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadAnswer(f"the answer has the Content-Length {shown(length)}")
    if status < 200 or status in (204, 304):
        return "length", 0
    if coding is not None:
        return "chunked", 0
    return ("close", 0) if length is None else ("length", int(length))


def _says_close(fields: dict[bytes, bytes]) -> bool:
    connection = fields.get(b"connection")
    return connection is not None and b"close" in [token.strip() for token in connection.lower().split(b",")]
