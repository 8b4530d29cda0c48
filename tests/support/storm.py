"""A storm over the replicas of a stack, and over workers: they are killed and started again at random, all the time."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.support.child import Child
from tests.support.stack import SERVICES, Stack

_BOTH = 0.1
"""How often all replicas of a service go at once."""
_IN_ORDER = 0.2
"""How often a process is told to stop (SIGTERM), and not killed."""
_CALM_S = 3.0
_AWAY_S = 1.5


class Storm:
    """Each service has one accident after another, drawn from a seed: the next when its processes are ready again."""

    def __init__(self, seed: int) -> None:
        self.accidents: Counter[str] = Counter()
        self._seed = seed
        self._calm = asyncio.Event()

    async def rage(self, service: str, replicas: Sequence[Child]) -> None:
        """Go on until `abate`; returns when every process of the service is ready."""
        chance = random.Random(f"{self._seed} {service}")
        await self._pause(chance.uniform(0, _CALM_S))
        while not self._calm.is_set():
            await self._accident(service, replicas, chance)
            await self._pause(chance.uniform(0, _CALM_S))

    def abate(self) -> None:
        """No accident begins any more."""
        self._calm.set()

    async def _accident(self, service: str, replicas: Sequence[Child], chance: random.Random) -> None:
        children = replicas if chance.random() < _BOTH else [chance.choice(replicas)]
        for child in children:
            number = signal.SIGTERM if chance.random() < _IN_ORDER else signal.SIGKILL
            child.kill(number)
            self.accidents[f"{service} {number.name}"] += 1
        await asyncio.gather(*(child.ended() for child in children))
        await self._pause(chance.uniform(0, _AWAY_S))
        for child in children:
            child.start()
        await asyncio.gather(*(child.ready() for child in children))

    async def _pause(self, duration_s: float) -> None:
        """Wait, or less when it is over."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._calm.wait(), duration_s)


@asynccontextmanager
async def storming(stack: Stack, seed: int, crews: Sequence[Sequence[Child]] = ()) -> AsyncIterator[Storm]:
    """A storm during the block, over all services and these crews. A process that cannot be started again fails it."""
    storm = Storm(seed)
    async with asyncio.TaskGroup() as group:
        for service in SERVICES:
            replicas = [stack.children[name] for name in stack.names(service)]
            group.create_task(storm.rage(service, replicas))
        for number, workers in enumerate(crews, 1):
            group.create_task(storm.rage(f"crew {number}", workers))
        try:
            yield storm
        finally:
            storm.abate()
