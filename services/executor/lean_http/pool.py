"""Which connections are kept, how many there may be, and who gets the next."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from services.executor.lean_http.connection import Connection, Origin

IDLE_S = 1.5
"""Under the shortest idle time of the usual servers (gunicorn 2 s, Node and uvicorn 5 s): who closes first decides."""

_MAX_AGE_S = 60.0  # a name may have moved to other servers meanwhile
_MAX_LANES = 4096


@dataclass(slots=True, eq=False)
class Lane:
    """The connections to one origin. `opened` counts all of them: in use, idle, and those about to be."""

    origin: Origin
    opened: int = 0
    idle: dict[Connection, None] = field(default_factory=dict)
    waiters: deque[asyncio.Future[Connection | None]] = field(default_factory=deque)
    single_until: float = 0.0
    """Until then each connection serves one request."""


class Pool:
    """The connections of a client. A slot is the right to hold one connection; who takes one gives it back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, per_origin: int, max_idle: int) -> None:
        self._loop = loop
        self._per_origin = per_origin
        self._max_idle = max_idle
        self._lanes: dict[Origin, Lane] = {}
        self._most_lanes = _MAX_LANES
        self._idle: OrderedDict[Connection, Lane] = OrderedDict()
        self._sweeping: asyncio.TimerHandle | None = None

    def lane(self, origin: Origin) -> Lane:
        """The connections to an origin."""
        lane = self._lanes.get(origin)
        if lane is None:
            if len(self._lanes) >= self._most_lanes:
                self._forget_unused()
            lane = self._lanes[origin] = Lane(origin)
        return lane

    def take_idle(self, lane: Lane) -> Connection | None:
        """An idle connection, with its slot; None if there is none that can be used."""
        while lane.idle:
            connection, _ = lane.idle.popitem()  # the last one used: the rest may grow old
            del self._idle[connection]
            if self._is_fresh(connection):
                return connection
            connection.abort()
            self._free_slot(lane)
        return None

    async def take_slot(self, lane: Lane) -> Connection | None:
        """A slot, waiting for one where all are taken; perhaps with a connection that another has just left."""
        if lane.opened < self._per_origin and not lane.waiters:
            lane.opened += 1
            return None
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        lane.waiters.append(waiter)
        try:
            connection = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.give_back(lane, waiter.result())
            raise
        if connection is None or self._is_fresh(connection):
            return connection
        connection.abort()
        return None

    def give_back(self, lane: Lane, connection: Connection | None, *, keep: bool = False) -> None:
        """Give a slot back, with its connection if there is one. It is closed unless it is to be kept."""
        if connection is None or not keep or connection.is_closed or self._is_old(connection):
            if connection is not None:
                connection.close()
            self._free_slot(lane)
            return
        connection.idle_since = self._loop.time()
        waiter = _next(lane.waiters)
        if waiter is not None:
            waiter.set_result(connection)
            return
        lane.idle[connection] = None
        self._idle[connection] = lane
        if len(self._idle) > self._max_idle:
            self._drop_oldest()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_S, self._sweep)

    def lost(self, connection: Connection) -> None:
        """A connection has ended; if it was idle, its slot is free."""
        lane = self._idle.pop(connection, None)
        if lane is not None:
            del lane.idle[connection]
            self._free_slot(lane)

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._drop_oldest()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def _is_fresh(self, connection: Connection) -> bool:
        return self._loop.time() - connection.idle_since < connection.idle_s and connection.is_quiet

    def _is_old(self, connection: Connection) -> bool:
        return self._loop.time() - connection.opened_at > _MAX_AGE_S

    def _free_slot(self, lane: Lane) -> None:
        waiter = _next(lane.waiters)
        if waiter is not None:
            waiter.set_result(None)
        else:
            lane.opened -= 1

    def _drop_oldest(self) -> None:
        connection, lane = self._idle.popitem(last=False)
        del lane.idle[connection]
        connection.close()
        self._free_slot(lane)

    def _sweep(self) -> None:
        """Close what has been idle for too long; the oldest are the first in order."""
        self._sweeping = None
        while self._idle:
            due = next(iter(self._idle)).idle_since + IDLE_S
            if due > self._loop.time():
                self._sweeping = self._loop.call_at(due, self._sweep)
                return
            self._drop_oldest()

    def _forget_unused(self) -> None:
        """Origins come from users; what is known of those without a connection is forgotten when they get many."""
        self._lanes = {origin: lane for origin, lane in self._lanes.items() if lane.opened}
        self._most_lanes = max(_MAX_LANES, 2 * len(self._lanes))


def _next(
    waiters: deque[asyncio.Future[Connection | None]],
) -> asyncio.Future[Connection | None] | None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            return waiter
    return None
