"""OpenWorkflow (TypeScript, Postgres), for W3: the fastest at durable starts."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure, labelled
from tests.bench.peers.database import fresh_database
from tests.bench.peers.install import Node, PeerMissing
from tests.bench.processes import Meter

_PROGRAM = Path(__file__).parent / "programs" / "openworkflow_starts.mjs"
_STARTS = 5_000


@dataclass(frozen=True, slots=True)
class OpenWorkflow:
    """Its client as a Node program of its own."""

    node: Node
    engine: str = "openworkflow"
    transport: str = ""

    def workloads(self) -> set[str]:
        """See `Contender.workloads`."""
        return {"W3"}

    async def measure(self, workload: str) -> list[Figure]:
        """See `Contender.measure`."""
        # Modules are looked for beside the program.
        program = shutil.copy(_PROGRAM, self.node.folder / _PROGRAM.name)
        async with fresh_database() as database:
            process = await asyncio.create_subprocess_exec(
                str(self.node.program), str(program), database.url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                if await process.stdout.readline() != b"ready\n":
                    raise PeerMissing("openworkflow did not become ready")
                pids = {"postgres": database.pids(), "driver": [process.pid]}
                with Meter(lambda: pids) as meter:
                    process.stdin.write(b"go\n")
                    seconds = json.loads(await process.stdout.readline())["seconds"]
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
        return labelled([Figure("starts_per_s", _STARTS / seconds, "1/s"), *meter.figures(_STARTS)], mode="single")
