"""One answer, read as it arrives. Pure: bytes in, an answer or an HttpError out, wherever the bytes were cut."""

from __future__ import annotations

from collections.abc import Callable

from services.executor.lean_http.chunks import ChunkDecoder
from services.executor.lean_http.errors import AnswerTooBig, BadAnswer, ConnectionBroken
from services.executor.lean_http.head import MAX_HEAD_BYTES, Head, begins_answer, check_beginning, shown

_END_OF_HEAD = b"\r\n\r\n"


class AnswerParser:
    """Reads one answer; once it is complete, `head` and `body` hold it.

    Interim answers (1xx) are passed over. A 200 whose body is over `max_body` bytes is `AnswerTooBig`, as soon as that
    is known; of any other answer only the beginning is wanted: its body is cut at `max_other_body`.
    """

    __slots__ = (
        "_buffer",
        "_chunks",
        "_head_bytes",
        "_max_body",
        "_max_other_body",
        "_missing",
        "_pieces",
        "_read_head",
        "_size",
        "has_surplus",
        "head",
        "is_cut",
    )

    def __init__(self, *, max_body: int, max_other_body: int, read_head: Callable[[bytes], Head]) -> None:
        """`read_head` is `head.parse_head`, or does as it does."""
        self.head: Head | None = None
        self.has_surplus = False
        """Bytes came behind the answer."""
        self.is_cut = False
        """The body is longer than what was kept of it."""
        self._read_head = read_head
        self._max_body = max_body
        self._max_other_body = max_other_body
        self._buffer = bytearray()
        self._head_bytes = 0
        self._missing = 0
        self._chunks: ChunkDecoder | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    @property
    def body(self) -> bytes:
        """What there is of the body."""
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    def feed(self, data: bytes) -> bool:
        """Take bytes from the connection; whether the answer is complete. Not to be called again once it is.

        Raises BadAnswer and AnswerTooBig.
        """
        head = self.head
        if head is None:
            rest = self._feed_head(data)
            if rest is None:
                return False
            head = self.head
            assert head is not None, "a rest comes behind a head"
            data = rest
        if head.framing == "length":
            return self._feed_counted(data)
        if self._chunks is not None:
            return self._feed_chunks(self._chunks, data)
        return self._keep(data)

    def end(self) -> None:
        """The server has closed. Raises ConnectionBroken unless that is how this answer ends."""
        if self.head is not None and self.head.framing == "close":
            return
        if self.head is not None:
            raise ConnectionBroken("the connection was closed in the middle of the answer")
        is_silent = not self._buffer and not self._head_bytes
        raise ConnectionBroken(
            "the connection was closed without an answer"
            if is_silent
            else "the connection was closed in the head of the answer"
        )

    def _feed_head(self, data: bytes) -> bytes | None:
        """What follows the head, or None as long as that is not complete."""
        buffer = self._buffer
        known = len(buffer)
        if known:
            buffer += data
            end = buffer.find(_END_OF_HEAD, max(0, known - 3))
            if end < 0:
                self._check_size(len(buffer))
                check_beginning(buffer, known - 1)
                return None
            data = bytes(buffer)
        else:
            end = data.find(_END_OF_HEAD)
        while end >= 0:
            end += len(_END_OF_HEAD)
            self._check_size(end)
            self._head_bytes += end
            head = self._read_head(data[:end])
            data = data[end:]
            if head.status >= 200:
                self._begin(head)
                return data
            if head.status == 101:
                raise BadAnswer("the server switches to another protocol, which nobody asked for")
            end = data.find(_END_OF_HEAD)
        buffer[:] = data
        self._check_size(len(buffer))
        check_beginning(buffer, 0)
        return None

    def _check_size(self, more: int) -> None:
        if self._head_bytes + more > MAX_HEAD_BYTES:
            raise BadAnswer(f"the head has more than {MAX_HEAD_BYTES} bytes")

    def _begin(self, head: Head) -> None:
        if head.status == 200 and head.length > self._max_body:
            raise AnswerTooBig(f"an answer may have {self._max_body} bytes, {head.length} are announced")
        self.head = head
        self._missing = head.length
        if head.framing == "chunked":
            self._chunks = ChunkDecoder()

    def _feed_counted(self, data: bytes) -> bool:
        missing = self._missing
        if len(data) == missing <= self._max_other_body and not self._pieces:
            self._pieces.append(data)  # all at once, and below every bound, as nearly always
            return True
        if len(data) < missing:
            self._missing -= len(data)
            return self._keep(data)
        self._keep(data[:missing])
        self._look_behind(data[missing:])
        return True

    def _feed_chunks(self, chunks: ChunkDecoder, data: bytes) -> bool:
        for piece in chunks.feed(data):
            if self._keep(piece):
                return True
        if not chunks.done:
            return False
        self._look_behind(chunks.rest)
        return True

    def _keep(self, piece: bytes) -> bool:
        """Keep a piece of the body; whether no more is wanted."""
        assert self.head is not None, "a body comes behind a head"
        is_answer = self.head.status == 200
        limit = self._max_body if is_answer else self._max_other_body
        self._size += len(piece)
        over = self._size - limit
        if over <= 0:
            self._pieces.append(piece)
            return False
        if is_answer:
            raise AnswerTooBig(f"an answer may have {limit} bytes, more came")
        self._pieces.append(piece[:-over])
        self.is_cut = True
        return True

    def _look_behind(self, rest: bytes) -> None:
        """A second answer behind the first concerns nobody; anything else means that the length was wrong."""
        if not rest:
            return
        self.has_surplus = True
        more = rest.lstrip(b"\r\n")
        if more and not begins_answer(more):
            raise BadAnswer(f"the answer goes on behind its end: {shown(more)}")
