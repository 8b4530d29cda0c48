"""The client: one request, one answer, and the rule that keeps the answers of kept connections apart.

A server may send an answer twice, or late, or bytes behind it. On a connection that is used again they would be read as
the answer to the next request, which is another run's, and nothing in HTTP/1.1 says which request an answer answers. So
every request carries a new random id, and a server that repeats it in the answer (protocol section 1) shows what its
answer belongs to. Only then is the connection kept; on a kept connection an answer without the right id is a fault. A
server that does not repeat ids is served by one connection a request.

A request is written once. If a kept connection ends after that without an answer, nobody can tell whether the server
saw the request: that is `ConnectionBroken`, never a second try in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import partial
from types import TracebackType
from typing import Self

import msgspec

from services.executor.lean_http.answer import AnswerParser
from services.executor.lean_http.connection import Connection, Origin
from services.executor.lean_http.dial import Dialer
from services.executor.lean_http.errors import BadAnswer, OutOfTime
from services.executor.lean_http.head import Head, KnownHeads
from services.executor.lean_http.pool import IDLE_S, Lane, Pool

ID_FIELD = "X-RunR-Request-Id"

_ID_FIELD = ID_FIELD.lower().encode()
_PLAIN_S = 60.0  # how long it is remembered that a server does not repeat ids
_DISTRUST_S = 600.0  # … and that one has sent what nobody asked for
_GOODBYE_S = 1.0
_ID_BYTES = 16
_IDS_AT_ONCE = 64


class Request(msgspec.Struct, frozen=True):
    """What to post. `beginning` is the request line with the Host field, `fields` further ones, each with its CRLF."""

    beginning: str
    fields: str
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    """What came back. `encoding` is the Content-Encoding in lower case; `is_cut`: only the beginning was read."""

    status: int
    encoding: str
    body: bytes
    is_cut: bool


class LeanClient:
    """Posts requests over HTTP/1.1. Used as an async context manager.

    It knows no proxies, redirects, cookies, content codings, or methods but POST.
    """

    def __init__(
        self, dialer: Dialer, *, max_body: int, max_other_body: int, per_origin: int = 1024, max_idle: int = 512
    ) -> None:
        """`max_body` bounds the body of a 200 in bytes; of other answers `max_other_body` bytes are read."""
        self._dialer = dialer
        self._max_body = max_body
        self._max_other_body = max_other_body
        self._per_origin = per_origin
        self._max_idle = max_idle
        self._loop: asyncio.AbstractEventLoop
        self._pool: Pool
        self._connections: set[Connection] = set()
        self._heads = KnownHeads(_ID_FIELD, secrets.token_hex(_ID_BYTES).encode())
        self._ids = ""
        """Random for ids, fetched in pools: a call of the kernel costs more than an id."""
        self._emptied = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self._loop, per_origin=self._per_origin, max_idle=self._max_idle)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close all connections; a request that is still under way ends as ConnectionBroken."""
        self._pool.close()
        self._dialer.close()
        for connection in list(self._connections):
            connection.abort()
        if self._connections:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._emptied.wait()

    async def post(self, origin: Origin, request: Request, timeout_s: float) -> Answer:
        """Send a request and read its answer.

        Raises HttpError, or AddressRefused. Cancelling closes the connection.
        """
        deadline = self._loop.time() + timeout_s
        lane = self._pool.lane(origin)
        connection = self._pool.take_idle(lane)
        if connection is None:
            connection = await self._connection(lane, deadline)
        request_id = self._new_id()
        is_single = lane.single_until > self._loop.time()
        closing = "Connection: close\r\n" if is_single else ""
        head = (
            f"{request.beginning}{closing}{request.fields}"
            f"{ID_FIELD}: {request_id}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        )
        sent_id = request_id.encode()
        parser = AnswerParser(
            max_body=self._max_body,
            max_other_body=self._max_other_body,
            read_head=partial(self._heads.read, sent_id),
        )
        keep = False
        try:
            await connection.exchange(head.encode(), request.body, parser, deadline)
            keep = self._may_keep(lane, connection, parser, sent_id) and not is_single
        finally:
            self._pool.give_back(lane, connection, keep=keep)
        got = parser.head
        assert got is not None, "an exchange ends with a head or raises"
        return Answer(got.status, got.encoding.decode("latin-1"), parser.body, parser.is_cut)

    def opened(self, connection: Connection) -> None:
        """See `Owner`."""
        self._connections.add(connection)

    def surplus(self, connection: Connection) -> None:
        """See `Owner`."""
        self._distrust(self._pool.lane(connection.origin))

    def lost(self, connection: Connection) -> None:
        """See `Owner`."""
        self._pool.lost(connection)
        self._connections.discard(connection)
        if not self._connections:
            self._emptied.set()

    async def _connection(self, lane: Lane, deadline: float) -> Connection:
        """A connection with its slot, new or left by another request."""
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._pool.take_slot(lane)
                if connection is not None:
                    return connection
                try:
                    return await self._dialer.dial(lane.origin, self)
                except BaseException:
                    self._pool.give_back(lane, None)
                    raise
        except TimeoutError:
            raise OutOfTime("there was no connection in time") from None

    def _new_id(self) -> str:
        if not self._ids:
            self._ids = secrets.token_hex(_ID_BYTES * _IDS_AT_ONCE)
        drawn, self._ids = self._ids[: 2 * _ID_BYTES], self._ids[2 * _ID_BYTES :]
        return drawn

    def _may_keep(self, lane: Lane, connection: Connection, parser: AnswerParser, sent_id: bytes) -> bool:
        """Whether the connection may be used again, after this answer. Raises BadAnswer."""
        got = parser.head
        assert got is not None, "an exchange ends with a head or raises"
        is_bound = got.request_id == self._heads.place or self._check_id(lane, connection, got, sent_id)
        if parser.has_surplus:
            self._distrust(lane)
        keep = is_bound and got.persists and connection.is_written and not parser.has_surplus and not parser.is_cut
        if keep:
            connection.idle_s = IDLE_S if got.idle_s is None else min(IDLE_S, got.idle_s / 2)
        return keep

    def _check_id(self, lane: Lane, connection: Connection, got: Head, sent: bytes) -> bool:
        """Whether the answer names its request. Raises BadAnswer if it may be the answer to another one."""
        if got.request_id == sent:
            return True
        if got.request_id is not None:
            self._distrust(lane)
            raise BadAnswer(f"an answer with HTTP {got.status} has the id of another request")
        lane.single_until = max(lane.single_until, self._loop.time() + _PLAIN_S)
        if connection.exchanges > 1:
            raise BadAnswer(
                f"an answer with HTTP {got.status} on a kept connection does not say which request it answers"
            )
        return False

    def _distrust(self, lane: Lane) -> None:
        lane.single_until = self._loop.time() + _DISTRUST_S
