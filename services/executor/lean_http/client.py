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
from types import TracebackType
from typing import NamedTuple, Self

from services.executor.lean_http.answer import AnswerParser
from services.executor.lean_http.connection import Connection, Origin
from services.executor.lean_http.dial import Dialer
from services.executor.lean_http.errors import BadAnswer, OutOfTime
from services.executor.lean_http.pool import IDLE_S, Lane, Pool

ID_FIELD = "X-RunR-Request-Id"

_ID_FIELD = ID_FIELD.lower().encode()
_PLAIN_S = 60.0  # how long it is remembered that a server does not repeat ids
_DISTRUST_S = 600.0  # … and that one has sent what nobody asked for
_GOODBYE_S = 1.0


class Request(NamedTuple):
    """What to post. `target` is path and query, `host` the Host field, `fields` further ones, each with its CRLF."""

    target: str
    host: str
    fields: str
    body: bytes


class Answer(NamedTuple):
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
        keep = False
        try:
            answer, keep = await self._exchange(lane, connection, request, deadline)
        finally:
            self._pool.give_back(lane, connection, keep=keep)
        return answer

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

    async def _exchange(
        self, lane: Lane, connection: Connection, request: Request, deadline: float
    ) -> tuple[Answer, bool]:
        """The answer, and whether the connection may be kept."""
        request_id = secrets.token_hex(16)
        is_single = lane.single_until > self._loop.time()
        closing = "Connection: close\r\n" if is_single else ""
        head = (
            f"POST {request.target} HTTP/1.1\r\nHost: {request.host}\r\n{closing}{request.fields}"
            f"{ID_FIELD}: {request_id}\r\nContent-Length: {len(request.body)}\r\n\r\n"
        )
        parser = AnswerParser(max_body=self._max_body, max_other_body=self._max_other_body, id_field=_ID_FIELD)
        await connection.exchange(head.encode(), request.body, parser, deadline)
        got = parser.head
        assert got is not None, "an exchange ends with a head or raises"
        is_bound = self._check_id(lane, connection, got.status, got.request_id, request_id.encode())
        if parser.has_surplus:
            self._distrust(lane)
        is_clean = connection.is_written and not parser.has_surplus and not parser.is_cut
        keep = is_bound and is_clean and got.persists and not is_single
        if keep:
            connection.idle_s = IDLE_S if got.idle_s is None else min(IDLE_S, got.idle_s / 2)
        return Answer(got.status, got.encoding.decode("latin-1"), parser.body, parser.is_cut), keep

    def _check_id(self, lane: Lane, connection: Connection, status: int, got: bytes | None, sent: bytes) -> bool:
        """Whether the answer names its request. Raises BadAnswer if it may be the answer to another one."""
        if got == sent:
            return True
        if got is not None:
            self._distrust(lane)
            raise BadAnswer(f"an answer with HTTP {status} has the id of another request")
        lane.single_until = max(lane.single_until, self._loop.time() + _PLAIN_S)
        if connection.exchanges > 1:
            raise BadAnswer(f"an answer with HTTP {status} on a kept connection does not say which request it answers")
        return False

    def _distrust(self, lane: Lane) -> None:
        lane.single_until = self._loop.time() + _DISTRUST_S
