"""The chunked transfer coding (RFC 9112, section 7.1). Pure."""

from __future__ import annotations

import re
from enum import Enum, auto

from services.executor.lean_http.errors import BadAnswer
from services.executor.lean_http.head import MAX_HEAD_BYTES, check_trailer, shown

_MAX_LINE = 4096
_MAX_EXTENSION_BYTES = 16 * 1024
_MAX_CHUNKS = 100_000  # each costs the event loop a microsecond, however small it is
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?")


class _Expects(Enum):
    SIZE = auto()
    DATA = auto()
    END_OF_DATA = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkDecoder:
    """Takes the coding as it arrives and gives the payload. `rest` is what came behind the last chunk."""

    __slots__ = ("_carry", "_chunks", "_expects", "_extension_bytes", "_left", "_trailer_bytes", "rest")

    def __init__(self) -> None:
        self.rest = b""
        self._carry = b""
        self._chunks = 0
        self._expects = _Expects.SIZE
        self._extension_bytes = 0
        self._left = 0
        self._trailer_bytes = 0

    @property
    def done(self) -> bool:
        """Whether the last chunk and the trailers were there."""
        return self._expects is _Expects.NOTHING

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of payload in `data`. Raises BadAnswer."""
        if self._carry:
            data, self._carry = self._carry + data, b""
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._expects is _Expects.DATA:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._expects = _Expects.END_OF_DATA
                continue
            line_end = data.find(b"\r\n", at, at + _MAX_LINE + 2)
            if line_end < 0:
                self._keep(data[at:])
                return pieces
            self._line(data[at:line_end])
            at = line_end + 2
        self.rest = data[at:]
        return pieces

    def _keep(self, part: bytes) -> None:
        """Keep a line that is not complete, unless it cannot become one."""
        is_hopeless = b"\n" in part or b"\r" in part[:-1]
        if is_hopeless or len(part) > _MAX_LINE or (self._expects is _Expects.END_OF_DATA and part != b"\r"):
            raise BadAnswer(f"malformed chunks: {shown(part)}")
        self._carry = part

    def _line(self, line: bytes) -> None:
        if self._expects is _Expects.SIZE:
            self._size(line)
        elif self._expects is _Expects.END_OF_DATA:
            if line:
                raise BadAnswer(f"a chunk is longer than its size: {shown(line)}")
            self._expects = _Expects.SIZE
        elif line:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_HEAD_BYTES:
                raise BadAnswer(f"the trailers have more than {MAX_HEAD_BYTES} bytes")
            check_trailer(line + b"\r\n")
        else:
            self._expects = _Expects.NOTHING

    def _size(self, line: bytes) -> None:
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise BadAnswer(f"a malformed size of a chunk: {shown(line)}")
        self._chunks += 1
        self._extension_bytes += len(line) - len(match[1])
        if self._chunks > _MAX_CHUNKS or self._extension_bytes > _MAX_EXTENSION_BYTES:
            raise BadAnswer("the answer is cut into too many chunks, or they have too long extensions")
        self._left = int(match[1], 16)
        self._expects = _Expects.DATA if self._left else _Expects.TRAILER
