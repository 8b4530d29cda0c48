"""The engine as it is benchmarked: `runr dev` in a throw-away home, and what a workload needs of it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from services.core.runtime.ids import ulid_uuid
from services.core.runtime.parent import PARENT_PIPE
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home, temporary_folder
from tests.bench.child import NotReady, free_port, running, tail, until
from tests.bench.lean_client import LeanClient
from tests.bench.mark import Mark, ended_since, mark_now, steps_since
from tests.bench.processes import Pids, command_of, descendants

SERVICES = ("gateway", "ingest", "scheduler", "executor")
SERVERS = ("postgres", "nats")

_UP_S = 90.0
_LOOK_S = 0.25
_ALONE_LOOK_S = 0.0004
_NOT_INHERITED = ("RUNR_", "WORKFLOWS_", "OTEL_", "DATABASE_URL", "NATS_URL")
_KEPT = ("RUNR_POSTGRES_BIN", "RUNR_NATS_BIN", "RUNR_EXECUTOR_SLOTS")


class BenchStack:
    """A running engine with a function. `transport` is the name of how the function is reached."""

    def __init__(self, client: LeanClient, database: asyncpg.Connection, dev: int, home: Path, transport: str) -> None:
        self.client = client
        self.database = database
        self.home = home
        self.transport = transport
        self.function: int | None = None
        self.marks_of: LeanClient | None = None
        self._dev = dev

    def pids(self) -> Pids:
        """Duty → processes: the services, the servers, `function`, and ourselves as `driver`."""
        found: dict[str, list[int]] = {}
        for pid in descendants(self._dev):
            duty = duty_of(command_of(pid))
            if duty is not None:
                found.setdefault(duty, []).append(pid)
        if self.function is not None:
            found["function"] = [self.function]
        return {**{duty: found[duty] for duty in (*SERVICES, *SERVERS, "function") if duty in found}, **_driver()}

    async def start(self, workflow: str, data: Mapping[str, Any], **options: Any) -> str:
        """Starts a run; its id."""
        path = f"/api/projects/default/workflows/{workflow}/runs"
        run: str = (await self.client.call("POST", path, {"data": data, **options}))["id"]
        return run

    async def send(self, events: list[dict[str, Any]]) -> list[str]:
        """Sends events in one request; the runs that they start."""
        accepted = await self.client.call("POST", "/api/events", events)
        return [run for event in accepted["events"] for run in event["runs"]]

    async def mark(self) -> Mark:
        """Tells what is there now from what is created later."""
        return await mark_now(self.database)

    async def ended_since(self, mark: Mark) -> int:
        """How many of the runs created after a `mark` have completed, as committed."""
        return await ended_since(self.database, mark)

    async def until_ended(
        self, count: int, mark: Mark, *, within_s: float, every_s: float = 0.01, not_before_s: float = 0.0
    ) -> None:
        """Returns when so many runs created after `mark` have completed. Raises NotReady.

        Nobody looks before `not_before_s` have passed, and the less often the more are missing: looking costs what is
        measured.
        """
        began, seen = time.monotonic(), 0

        async def ended() -> bool:
            nonlocal seen
            seen = await self.ended_since(mark)
            return seen >= count

        def pause_s() -> float:
            left_s = (time.monotonic() - began) * (count - seen) / seen if seen else 0.0
            return max(every_s, min(left_s / 4, _LOOK_S))

        await asyncio.sleep(not_before_s)
        await until(ended, within_s=within_s, what=f"{count} runs completed", every_s=pause_s)

    async def until_run_ended(self, run: str, *, within_s: float, not_before_s: float) -> None:
        """Returns when the run has ended. Nobody looks before `not_before_s` have passed, and then for one row only:
        looking costs what is measured. Raises NotReady.

        It pauses with the whole process: the timers of the loop count in milliseconds, and what is shorter is no pause.
        """
        ended = await self.database.prepare("select exists (select from rt.ends where run = $1)")
        run_id = ulid_uuid(run)

        async def is_there() -> bool:
            return bool(await ended.fetchval(run_id))

        await asyncio.sleep(not_before_s)
        deadline_s = time.monotonic() + within_s
        while not await is_there():
            if time.monotonic() > deadline_s:
                raise NotReady(f"run {run} ended: not so within {within_s:g} s")
            time.sleep(_ALONE_LOOK_S)

    async def until_resting(self, state: str, count: int, *, within_s: float) -> None:
        """Returns when so many runs are in the state `s` (asleep) or `w` (waiting)."""

        async def rest() -> bool:
            resting = await self.database.fetchval("select count(*) from rt.live where st::text = $1", state)
            return bool(resting >= count)

        await until(rest, within_s=within_s, what=f"{count} runs in state {state}", every_s=0.1)

    async def until_idle(self, *, within_s: float) -> None:
        """Returns when nothing is queued or runs."""

        async def idle() -> bool:
            return not await self.database.fetchval("select count(*) from rt.live where st in ('q', 'r', 'b')")

        await until(idle, within_s=within_s, what="no run is queued or running", every_s=0.1)

    async def steps_since(self, mark: Mark) -> int:
        """How many steps of the runs created after `mark` are committed."""
        return await steps_since(self.database, mark)

    async def steps_executed(self) -> int:
        """How many step bodies the function has executed since `take_marks`."""
        assert self.marks_of is not None
        found: int = await self.marks_of.call("POST", "/", "executed")
        return found

    async def take_marks(self) -> dict[str, Any]:
        """What the function's bodies have noted since the last time."""
        assert self.marks_of is not None
        found: dict[str, Any] = await self.marks_of.call("POST", "/", "marks")
        return found

    def signal_services(self, number: signal.Signals, services: Iterable[str] = SERVICES) -> None:
        """Sends a signal to the processes of some services."""
        pids = self.pids()
        for service in services:
            for pid in pids.get(service, ()):
                os.kill(pid, number)

    def service_log(self) -> str:
        """The end of what the engine has said."""
        return tail(self.home / "dev.log")


def duty_of(command: list[str]) -> str | None:
    """What a process of the stack does, by its command line; None for one that is not told apart."""
    if "serve" in command:
        return command[command.index("serve") + 1]
    program = command[0] if command else ""
    if program.startswith("postgres") or program.endswith("/postgres"):
        return "postgres"
    return "nats" if program.endswith("nats-server") else None


def _driver() -> Pids:
    return {"driver": [os.getpid()]}


Attach = Callable[[BenchStack, AsyncExitStack], Awaitable[None]]
"""Starts the benchmark's function and makes the engine know it; what it opens is closed with the exit stack."""


@asynccontextmanager
async def bench_stack(transport: str, attach: Attach) -> AsyncIterator[BenchStack]:
    """A fresh engine with a function that is attached."""
    async with AsyncExitStack() as closing:
        folder = closing.enter_context(temporary_folder("bench"))
        environ = {
            name: value for name, value in os.environ.items() if name in _KEPT or not name.startswith(_NOT_INHERITED)
        }
        environ = {**python_environ(environ), "RUNR_HOME": str(folder), PARENT_PIPE: "1"}
        command = python_command("services.cli.main", "dev", "--port", str(free_port()))
        dev = await closing.enter_async_context(running(command, environ=environ, log=folder / "dev.log"))
        home = Home(folder)

        async def up() -> bool:
            if dev.returncode is not None:
                raise NotReady(f"the engine did not start: {tail(folder / 'dev.log')}")
            return bool(home.recall("stack.json"))

        await until(up, within_s=_UP_S, what="the engine is up")
        told = home.recall("stack.json")
        headers = {"Authorization": f"Bearer {told['token']}"}
        client = await closing.enter_async_context(LeanClient(told["api_url"], headers))
        database = await asyncpg.connect(told["database_url"])
        closing.push_async_callback(database.close)
        stack = BenchStack(client, database, dev.pid, folder, transport)
        await attach(stack, closing)
        yield stack
