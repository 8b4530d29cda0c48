"""A steady load by a client that keeps its promise: it asks again, under the same key, within its window and no longer.

What a rolling restart may cost is what such a client does not see: requests that were asked again are counted, one that
was not answered within the window is a fault.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.support.rest import Json, Rest

_PAUSE_S = (0.05, 0.5)
_LONG_POLL_S = 2
_TURN = ("start", "event", "list", "start", "result", "workflows", "start", "event", "app", "poll")
"""What the client asks for, over and over: half of it is written, and each service answers some of it."""

_CHANGE_EACH = 7
"""Of the lists every so many is a change instead: a write that goes to a service in a call of its own."""


@dataclass
class Tally:
    """What became of the requests. `asked_again` counts what made the client do so, `late` is what it gave up."""

    answered: Counter[str] = field(default_factory=Counter)
    asked_again: Counter[str] = field(default_factory=Counter)
    late: list[str] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    repeated: int = 0

    @property
    def requests(self) -> int:
        """All that were made, each counted once."""
        return self.answered.total() + len(self.late)

    def slowest_s(self, share: float) -> float:
        """What this share of the requests took at most, with everything that was asked again."""
        ordered = sorted(self.took_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class SteadyLoad:
    """So many requests a second at all gateways in turn, however long each takes, until `end`.

    `window_s`: how long the client asks again before it tells its caller of a fault.
    """

    def __init__(self, gateways: Sequence[Rest], *, rate: float, window_s: float) -> None:
        self.tally = Tally()
        self.started: dict[int, str] = {}
        self.heard: dict[int, str] = {}
        self._gateways = gateways
        self._rate = rate
        self._window_s = window_s
        self._chance = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        self._begun = 0

    async def run(self) -> None:
        """Ask until `end`, then wait for what is on its way."""
        began = time.monotonic()
        while not self._over.is_set():
            for number in range(self._begun, int((time.monotonic() - began) * self._rate) + 1):
                task = asyncio.create_task(self._one(number))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                self._begun += 1
            await asyncio.sleep(1 / self._rate)
        await asyncio.gather(*self._tasks)

    def end(self) -> None:
        """Ask for nothing new."""
        self._over.set()

    async def _one(self, number: int) -> None:
        kind = _TURN[number % len(_TURN)]
        known = self._chance.choice(list(self.started.values())[-50:]) if self.started else None
        match kind:
            case "start":
                body = {"data": {"n": number}, "idempotency_key": f"r-{number}"}
                answer = await self._insist(number, kind, "POST", "/projects/default/workflows/rolled/runs", body)
                if answer is not None:
                    self.started[number] = answer["id"]
            case "event":
                body = {"name": "rolling.heard", "id": f"e-{number}", "data": {"n": number}}
                answer = await self._insist(number, kind, "POST", "/events", body)
                if answer is not None:
                    (self.heard[number],) = answer["events"][0]["runs"]
            case "result" | "poll" if known is not None:
                wait = f"?wait={_LONG_POLL_S}" if kind == "poll" else ""
                await self._insist(number, kind, "GET", f"/runs/{known}/result{wait}")
            case "workflows" if number % _CHANGE_EACH == 0:
                change = {"is_active": True}
                await self._insist(number, "change", "PATCH", "/projects/default/workflows/heard", change)
            case "workflows":
                await self._insist(number, kind, "GET", "/projects/default/workflows")
            case "app":
                await self._insist(number, kind, "GET", "/projects/default/workflows/app")
            case _:
                await self._insist(number, "list", "GET", "/projects/default/runs?limit=5")

    async def _insist(self, number: int, kind: str, method: str, path: str, body: Json | None = None) -> Any:
        """The answer within the window, of whichever gateway; None for none, which is noted."""
        began = time.monotonic()
        faults: list[str] = []
        while True:
            gateway = self._gateways[(number + len(faults)) % len(self._gateways)]
            fault = await self._try(gateway, method, path, body)
            if not isinstance(fault, str):
                self.tally.answered[kind] += 1
                self.tally.took_s.append(time.monotonic() - began)
                self.tally.repeated += bool(faults)
                return fault.json
            faults.append(fault)
            self.tally.asked_again[f"{kind}: {fault}"] += 1
            if time.monotonic() - began > self._window_s:
                self.tally.late.append(f"{method} {path}: {faults}")
                return None
            await asyncio.sleep(min(_PAUSE_S[0] * len(faults), _PAUSE_S[1]))

    async def _try(self, gateway: Rest, method: str, path: str, body: Json | None) -> Any:
        """The answer, or what was wrong with it where asking again may help."""
        try:
            async with asyncio.timeout(self._window_s):
                reply = await gateway.call(method, path, body)
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"{type(error).__name__}"
        if reply.status >= 500:
            return f"{reply.status} {reply.json['detail']}"
        assert reply.status < 300, reply.body
        return reply
