"""HTTP/1.1 requests out of bytes, without I/O: one after another, however they are cut."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol import MAX_BODY_BYTES
from .http1 import MAX_HEAD_BYTES, Head, HeadParser, HttpFault, parse_chunk_size

_END_OF_HEAD = b"\r\n\r\n"
_END_OF_LINE = b"\r\n"


class Request(NamedTuple):
    """A whole request."""

    head: Head
    body: bytes


class RequestReader:
    """The requests of one connection. Feed what arrives, then ask for the next until there is none."""

    def __init__(self) -> None:
        self.head: Head | None = None
        """Of the request whose body is being read."""
        self.wants_continue = False
        """Whether the client waits for `100 Continue`; whoever sends it says so by setting this to False."""
        self._heads = HeadParser()
        self._parts: list[bytes] = []
        self._size = 0
        self._needed = 1  # so many bytes must be there before anything more can be said
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._chunk_bytes = 0
        self._trailer_bytes: int | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no part of a request has arrived that was not taken."""
        return self.head is None and self._size == 0

    @property
    def waiting_bytes(self) -> int:
        """How much has arrived that was not taken."""
        return self._size

    def feed(self, data: bytes) -> None:
        """Bytes have arrived."""
        self._parts.append(data)
        self._size += len(data)

    def next(self) -> Request | None:
        """The next request, None while it is not whole.

        Raises HttpFault for what is no HTTP/1.1, ambiguous, too large, or not POST; nothing can be read after that.
        """
        if self._size < self._needed:
            return None
        data = b"".join(self._parts) if len(self._parts) > 1 else self._parts[0]
        if self.head is None:
            end = data.find(_END_OF_HEAD, 0, MAX_HEAD_BYTES + len(_END_OF_HEAD))
            if end < 0:
                if len(data) > MAX_HEAD_BYTES:
                    raise HttpFault(431, "the head of the request is too large")
                self._wait(data, len(data) + 1)
                return None
            head = self.head = self._heads.parse(data[:end])
            if head.method != "POST" or "expect" in head.headers or (head.length or 0) > MAX_BODY_BYTES:
                self._judge(head)
            data = data[end + len(_END_OF_HEAD) :]
        length = self.head.length
        if length is None:
            return self._in_chunks(self.head, data)
        if len(data) < length:
            self._wait(data, length)
            return None
        return self._done(self.head, data[:length], data[length:])

    def _judge(self, head: Head) -> None:
        if head.method != "POST":
            raise HttpFault(405, "engine requests are POST")
        if head.length is not None and head.length > MAX_BODY_BYTES:
            raise HttpFault(413, f"the body has {head.length} bytes, the limit is {MAX_BODY_BYTES}")
        self.wants_continue = head.expects_continue

    def _in_chunks(self, head: Head, data: bytes) -> Request | None:
        place = 0
        while True:
            if self._chunk_bytes:
                end = place + self._chunk_bytes
                if len(data) < end + len(_END_OF_LINE):
                    self._wait(data[place:], self._chunk_bytes + len(_END_OF_LINE))
                    return None
                if not data.startswith(_END_OF_LINE, end):
                    raise HttpFault(400, "malformed chunk")
                self._chunks.append(data[place:end])
                place, self._chunk_bytes = end + len(_END_OF_LINE), 0
            end = data.find(_END_OF_LINE, place)
            if (end if end >= 0 else len(data)) - place + (self._trailer_bytes or 0) > MAX_HEAD_BYTES:
                raise HttpFault(400, "malformed chunk")
            if end < 0:
                self._wait(data[place:], len(data) - place + 1)
                return None
            line, place = data[place:end], end + len(_END_OF_LINE)
            if self._trailer_bytes is None:
                self._begin_chunk(parse_chunk_size(line))
            elif line:
                self._trailer_bytes += len(line)
            else:
                return self._done(head, b"".join(self._chunks), data[place:])

    def _begin_chunk(self, size: int) -> None:
        if size == 0:
            self._trailer_bytes = 0
            return
        self._body_bytes += size
        if self._body_bytes > MAX_BODY_BYTES:
            raise HttpFault(413, f"the body is larger than the limit of {MAX_BODY_BYTES} bytes")
        self._chunk_bytes = size

    def _wait(self, data: bytes, needed: int) -> None:
        self._parts = [data] if data else []
        self._size, self._needed = len(data), needed

    def _done(self, head: Head, body: bytes, rest: bytes) -> Request:
        self._parts, self._size, self._needed = ([rest] if rest else []), len(rest), 1
        self.head, self.wants_continue = None, False
        if self._trailer_bytes is not None:
            self._chunks, self._body_bytes, self._trailer_bytes = [], 0, None
        return Request(head, body)
