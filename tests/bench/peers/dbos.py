"""DBOS (Python, Postgres): a program in the peers' environment that measures itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from services.embedded.home import temporary_folder
from tests.bench.figures import Figure
from tests.bench.peers.database import fresh_database
from tests.bench.peers.install import PeerMissing

_ROOT = Path(__file__).resolve().parents[3]
_PROGRAM = Path(__file__).parent / "programs" / "dbos_program.py"


@dataclass(frozen=True, slots=True)
class Dbos:
    """DBOS with its defaults; `python` is the peers' interpreter."""

    python: Path
    asleep: int
    engine: str = "dbos"
    transport: str = ""

    def workloads(self) -> set[str]:
        """See `Contender.workloads`."""
        return {"W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "growth"}

    async def measure(self, workload: str) -> list[Figure]:
        """See `Contender.measure`."""
        with temporary_folder("bench-dbos") as folder:
            async with fresh_database() as database:
                environ = {
                    **os.environ,
                    "PYTHONPATH": str(_ROOT),
                    "PEER_DATABASE": database.url,
                    "PEER_DATABASE_PID": str(database.pid),
                    "PEER_ASLEEP": str(self.asleep),
                    "PEER_FOLDER": str(folder),
                }
                process = await asyncio.create_subprocess_exec(
                    str(self.python),
                    str(_PROGRAM),
                    workload,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                try:
                    printed, errors = await process.communicate()
                finally:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
        if process.returncode:
            raise PeerMissing(f"dbos {workload}: {errors[-500:].decode(errors='replace')}")
        return [Figure(*each) for each in json.loads(printed.splitlines()[-1])]
