"""The test kits of the SDKs: what a user's test of a long workflow costs. No engine runs."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.figures import Figure
from tests.support.node import SDK, find_node

WORKLOAD = "kit"

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Kits:
    """Both kits; they drive workflows as requests over HTTP do."""

    engine: str = "runr"
    transport: str = "http"

    def workloads(self) -> set[str]:
        """See `Contender.workloads`."""
        return {WORKLOAD}

    async def measure(self, workload: str) -> list[Figure]:
        """See `Contender.measure`. A process for each SDK, which runs one test again and again."""
        node = find_node()
        if not (SDK / "dist" / "testing.js").exists():
            await _said([*node.npm, "--prefix", str(SDK), "run", "build", "--silent"], node.environ)
        commands = {
            "python": [sys.executable, "-m", "tests.bench.kit.story"],
            "typescript": [str(node.program), str(_HERE / "story.mjs")],
        }
        figures: list[Figure] = []
        for sdk, command in commands.items():
            figures += _figures(sdk, json.loads(await _said(command, node.environ)))
        return figures


def _figures(sdk: str, taken_ms: Sequence[float]) -> list[Figure]:
    labels = {"sdk": sdk}
    return [
        Figure("first_ms", taken_ms[0], "ms", labels),
        Figure("test_p50_ms", statistics.median(taken_ms), "ms", labels),
    ]


async def _said(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """What it writes. Its log is shown only where it fails."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environ}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, log = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{command[0]} ended with {process.returncode}: {log.decode()[-2000:]}")
    return said.decode()
