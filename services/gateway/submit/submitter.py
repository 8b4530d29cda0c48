"""Requests of one kind, over streams to all replicas of ingest.

An item is sent to another replica only when it is known or harmless: one that was never sent, or one whose id tells
ingest that it has been carried out already. It waits a moment for a replica when there is none, longer when its fate is
not known, and never beyond its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from runr.workflows.v1 import resources_pb2

from services.core.runtime.clock import Clock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.parse import Address
from services.gateway.submit.item import Form, Item, cut_off, unreachable
from services.gateway.submit.lane import Dial, Lane
from services.gateway.submit.told_clock import ToldClock

log = logging.getLogger(__name__)

_RESOLVE_S = 5.0
_LOOK_S = 0.1
_SWEEP_S = 1.0
_UNSENT_S = 1.0
_UNKNOWN_S = 10.0


Resolve = Callable[[Address], Awaitable[set[Address]]]
"""All addresses that a name leads to. Raises OSError."""


class Submitter:
    """Sends requests and has them answered."""

    def __init__(
        self,
        address: Address,
        form: Form,
        *,
        dial: Dial,
        ids: UlidFactory,
        told: ToldClock,
        clock: Clock,
        resolve: Resolve,
    ) -> None:
        self._address = address
        self._resolve = resolve
        self._form = form
        self._dial = dial
        self._ids = ids
        self._told = told
        self._clock = clock
        self._lanes: dict[Address, tuple[Lane, asyncio.Task[None]]] = {}
        self._orphans: list[Item] = []
        self._turn = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._looking: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._tasks = [
            asyncio.create_task(self._follow(), name="ingest-replicas"),
            asyncio.create_task(self._sweep(), name="ingest-deadlines"),
        ]

    async def stop(self) -> None:
        """Close everything; a second call does nothing."""
        tasks, self._tasks = self._tasks, []
        lanes, self._lanes = self._lanes, {}
        tasks += [task for _, task in lanes.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._looking is not None:
            self._looking.cancel()
        for item in self._orphans:
            item.expire()

    def submit(
        self, request: Any, credentials: resources_pb2.Credentials, *, size: int, timeout_s: float
    ) -> Awaitable[Any]:
        """The response to a request. Raises the error that it was refused with, and Unavailable."""
        id = self._ids.block(self._form.ids(request))
        item = Item(request, credentials, id, size=size, now=self._clock.monotonic(), timeout_s=timeout_s)
        self._place(item)
        return item.answer

    def _place(self, item: Item) -> None:
        lane = self._best()
        if lane is not None:
            lane.put(item)
        else:
            self._orphans.append(item)
            self._look_later()

    def _best(self) -> Lane | None:
        """The replica with the least to do; of equals each in turn."""
        up = [lane for lane, _ in self._lanes.values() if lane.is_up]
        if len(up) < 2:
            return up[0] if up else None
        self._turn += 1
        first = self._turn % len(up)
        return min(up[first:] + up[:first], key=lambda lane: lane.load)

    def _orphan(self, item: Item) -> None:
        """The stream that had it is broken."""
        if not item.is_over:
            item.since = self._clock.monotonic()
            self._place(item)

    def _adopt(self) -> None:
        orphans, self._orphans = self._orphans, []
        for item in orphans:
            if not item.is_over:
                self._place(item)

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        """Give up the orphans that have waited for long."""
        self._looking = None
        now = self._clock.monotonic()
        orphans, self._orphans = self._orphans, []
        for item in orphans:
            if now >= item.deadline:
                item.expire()
            elif now - item.since >= (_UNKNOWN_S if item.sent else _UNSENT_S):
                item.fail(cut_off() if item.sent else unreachable())
            elif not item.is_over:
                self._orphans.append(item)
        if self._orphans:
            self._look_later()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self._clock.monotonic()
            for lane, _ in self._lanes.values():
                for item in lane.held():
                    if now >= item.deadline:
                        item.expire()

    async def _follow(self) -> None:
        """Keep a lane to each address that the name has."""
        while True:
            with contextlib.suppress(OSError):
                self._meet(await self._resolve(self._address))
            await asyncio.sleep(_RESOLVE_S)

    def _meet(self, addresses: set[Address]) -> None:
        for address in addresses - self._lanes.keys():
            lane = Lane(address, self._form, dial=self._dial, orphan=self._orphan, told=self._told, clock=self._clock)
            self._lanes[address] = lane, asyncio.create_task(lane.run(self._adopt), name=f"lane {address}")
        # A replica that its name does not lead to any more ends its streams by itself, when it has answered.
        for address in [address for address in self._lanes.keys() - addresses if not self._lanes[address][0].is_up]:
            self._lanes.pop(address)[1].cancel()


async def addresses_of(address: Address) -> set[Address]:
    """All that the host's name leads to. Raises OSError."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(address.host)
        return {address}
    found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return {Address(host=str(sockaddr[0]), port=address.port) for *_, sockaddr in found}
