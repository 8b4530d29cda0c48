"""Workers in processes of their own, which a test kills, freezes and starts again; their bodies are the test's."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import runr_workflows

from services.core.runtime.python_child import python_command
from tests.support.child import READY_S, Child
from tests.support.homes import temporary_home
from tests.support.remote_bodies import BODIES_VARIABLE, answering
from tests.support.rest import Rest
from tests.support.workflow_app import Bodies

_SDK = Path(runr_workflows.__file__).parents[1]
_POLL_S = 0.02


class Worker(Child):
    """One worker. `app` names what registers its workflows: `module:function`."""

    def __init__(self, name: str, app: str, *, environ: Mapping[str, str], log: Path) -> None:
        paths = [str(_SDK), environ.get("PYTHONPATH", "")]
        super().__init__(
            name,
            "worker",
            environ={**environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
            health="",
            log=log,
            command=python_command("tests.support.worker_process", app),
        )
        self._lines_before = 0

    def start(self) -> None:
        """See `Child.start`."""
        self._lines_before = len(self.log_lines())
        super().start()

    async def ready(self, timeout_s: float = READY_S) -> None:
        """Wait until an executor has taken it in."""
        deadline = time.monotonic() + timeout_s
        while not any(line.startswith("connected to ") for line in self.log_lines()[self._lines_before :]):
            assert self.runs, f"{self.name} has ended\n{self.log_tail()}"
            assert time.monotonic() < deadline, f"{self.name} is not connected\n{self.log_tail()}"
            await asyncio.sleep(_POLL_S)


@dataclass(frozen=True)
class Crew:
    """The workers of a project, and what their bodies did."""

    workers: Sequence[Worker]
    bodies: Bodies

    def log_tails(self) -> str:
        """The ends of all logs."""
        return "\n\n".join(f"--- {worker.name}\n{worker.log_tail()}" for worker in self.workers)


@asynccontextmanager
async def crew(
    rest: Rest, app: str, urls: Sequence[str], *, bodies: Bodies | None = None, **calls: Callable[..., Any]
) -> AsyncIterator[Crew]:
    """A worker of the client's project at each of these addresses. `calls`: what bodies ask for, beside `Bodies`."""
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    bodies = bodies or Bodies()
    with temporary_home("crew") as home, answering(bodies, **calls) as address:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNR_")}
        environ = {
            **inherited,
            BODIES_VARIABLE: address,
            "RUNR_WORKFLOW_SIGNING_KEY": shown["signing_key"],
            "RUNR_PROJECT": rest.project,
            "RUNR_TENANT": rest.tenant,
        }
        workers = [
            Worker(
                f"{rest.tenant}-worker-{number}",
                app,
                environ={**environ, "RUNR_WORKER_URL": url},
                log=home.path / f"worker-{number}.log",
            )
            for number, url in enumerate(urls, 1)
        ]
        made = Crew(workers, bodies)
        try:
            for worker in workers:
                worker.start()
            await asyncio.gather(*(worker.ready() for worker in workers))
            yield made
        except BaseException:
            print(made.log_tails())
            raise
        finally:
            bodies.let_go()
            await asyncio.gather(*(worker.stop() for worker in workers))
