"""Who is measured: the engine over one transport, or a peer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.bench.figures import Figure
from tests.bench.profile import profiling
from tests.bench.stack import SERVICES, bench_stack
from tests.bench.transport import TRANSPORTS
from tests.bench.workloads.catalogue import Workload

OURS = "runr"


class Contender(Protocol):
    """Something that workloads are measured on. Each run has a fresh one: server, database, function."""

    @property
    def engine(self) -> str:
        """`runr`, or the peer's name."""
        ...

    @property
    def transport(self) -> str:
        """How its function is reached, where there is a choice; else ``."""
        ...

    def workloads(self) -> set[str]:
        """Names of the workloads that it can be measured with."""
        ...

    async def measure(self, workload: str) -> list[Figure]:
        """The figures of one run."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """The engine. With `profiles`, processes are sampled into that folder, and the figures are worth less."""

    transport: str
    known: Mapping[str, Workload]
    profiles: Path | None = None
    profiled: tuple[str, ...] = (*SERVICES, "function")
    engine: str = OURS

    def workloads(self) -> set[str]:
        """See `Contender.workloads`."""
        return {name for name, workload in self.known.items() if workload.measure is not None}

    async def measure(self, workload: str) -> list[Figure]:
        """See `Contender.measure`."""
        measure = self.known[workload].measure
        assert measure is not None
        async with bench_stack(self.transport, TRANSPORTS[self.transport]) as stack, AsyncExitStack() as sampled:
            if self.profiles is not None:
                name = f"{workload}-{self.transport}"
                await sampled.enter_async_context(profiling(stack, self.profiles, name, self.profiled))
            try:
                return await measure(stack)
            except Exception as error:
                error.add_note(f"the engine's log ends:\n{stack.service_log()}")
                raise
