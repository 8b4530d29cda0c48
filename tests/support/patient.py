"""A client that does not give up: it asks again, and another gateway, until it gets an answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from typing import Any

import aiohttp

from tests.support.rest import Json, Rest

PATIENCE_S = 90.0

_AT_ONCE = 24
_PAUSE_S = 0.1


class PatientClient:
    """Calls the gateways of `rests` in turn. `faults` are the outcomes that made it ask again."""

    def __init__(self, *rests: Rest) -> None:
        self.faults: Counter[str] = Counter()
        self._next = itertools.cycle(rests)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def insist(self, method: str, path: str, body: Json | None = None) -> Any:
        """The answer, once there is one that is no fault of the engine."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                async with self._slots:
                    reply = await next(self._next).call(method, path, body)
                if reply.status < 500:
                    assert reply.status < 300, reply.body
                    return reply.json
                fault = str(reply.status)
            except (aiohttp.ClientError, TimeoutError) as error:
                fault = type(error).__name__
            self.faults[fault] += 1
            assert time.monotonic() < deadline, f"{method} {path} not answered within {PATIENCE_S:g} s: {self.faults}"
            await asyncio.sleep(_PAUSE_S)
