"""`runr demo`: an order workflow that loses its executor in the middle and finishes all the same.

Everything is real and throw-away: a stack of its own in a temporary home, the example function, the public API.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.function import APP, register_function
from services.cli.timeline import timeline
from services.core.runtime.parent import PARENT_PIPE
from services.core.runtime.python_child import python_command, python_environ
from services.core.runtime.service import EXIT_OK
from services.embedded.home import Home, temporary_folder
from services.embedded.identity import OURSELVES

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workflows" / "orders" / "app.py"
_LIMIT_S = 85.0
_STOP_S = 30.0
_POLL_S = 0.05
_LOOK_S = 1.0
_STALLED_LOOKS = 3
_ORDER = {"order_id": "o-1", "total": 42}
# Long enough to be killed in, short enough to watch.
_PACE = {"ORDERS_RESERVE_SECONDS": "2", "ORDERS_FRAUD_CHECK": "2s"}
_OUR_PREFIXES = ("RUNR_", "WORKFLOWS_")
_KEPT = ("RUNR_POSTGRES_BIN", "RUNR_NATS_BIN", "RUNR_LOG_LEVEL", "RUNR_LOG_FORMAT")


async def run(environ: Mapping[str, str]) -> int:
    """Plays the demo; 0 only when the run completed with the right output."""
    if not _EXAMPLE.is_file():
        raise Failure(f"the demo needs the repository: {_EXAMPLE} is missing")
    with temporary_folder("demo") as folder:
        demo = Demo(environ, folder)
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await demo.play()
        except TimeoutError:
            raise Failure(f"the demo did not end within {_LIMIT_S:g} s\n{demo.last_seen()}") from None


class Demo:
    """One performance."""

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self._home = Home(folder)
        self._bodies = folder / "step-bodies.jsonl"
        self._environ = _clean(environ, folder)
        self._began = time.monotonic()
        self._run: dict[str, Any] = {}

    async def play(self) -> int:
        """From an empty folder to a completed run."""
        self._say("starting Postgres, NATS and the four services in a temporary folder")
        async with self._stack() as stack, ApiClient(stack["api_url"], stack["token"]) as api:
            self._say(f"the stack is up: {stack['api_url']}")
            async with self._function(api) as url:
                synced = await register_function(api, url)
                names = ", ".join(workflow["name"] for workflow in synced["workflows"])
                self._say(f"the example function serves {url}: {names}")
                run = await self._order(api, stack["pids"]["executor"], stack["health"]["executor"])
        return self._report(run)

    async def _order(self, api: ApiClient, executor: int, executor_health: str) -> dict[str, Any]:
        sent = await api.call("POST", "/api/events", {"name": "order.created", "data": _ORDER})
        (run_id,) = sent["events"][0]["runs"]
        self._say(f"order.created is sent; run {run_id} has started")

        following = asyncio.create_task(self._follow(api, run_id), name="follow")
        try:
            return await self._played(api, run_id, executor)
        finally:
            following.cancel()

    async def _follow(self, api: ApiClient, run_id: str) -> None:
        """Looks at the run now and then; tells what it waits for, if that is the same for some time."""
        told, same, looks = "", "", 0
        while True:
            with suppress(ApiFailure):
                self._run = await api.call("GET", f"/api/runs/{run_id}")
            why = self._run["waiting_for"]["message"] if self._run and self._run["waiting_for"] else ""
            same, looks = why, looks + 1 if why == same else 0
            if why and why != told and looks >= _STALLED_LOOKS:
                self._say(f"the run {why}")
                told = why
            await asyncio.sleep(_LOOK_S)

    async def _played(self, api: ApiClient, run_id: str, executor: int) -> dict[str, Any]:
        await _until(self._second_body_has_begun)
        os.kill(executor, signal.SIGKILL)
        self._say(f"kill -9 of the executor (process {executor}) while the run is in its step {self._bodies_run()[-1]}")

        async def waits() -> bool:
            found = self._run = await api.call("GET", f"/api/runs/{run_id}")
            return any(step["status"] == "waiting" for step in found["steps"]) or found["ended_at"] is not None

        await _until(waits)
        self._say("the supervisor has started the executor again; the run goes on and waits for order.shipped")
        await api.call("POST", "/api/events", {"name": "order.shipped", "data": {"order_id": _ORDER["order_id"]}})
        self._say("order.shipped is sent")

        async def ended() -> bool:
            result = await api.call("GET", f"/api/runs/{run_id}/result?wait=10")
            return bool(result["ended"])

        await _until(ended)
        found: dict[str, Any] = await api.call("GET", f"/api/runs/{run_id}")
        self._say(f"the run has ended: {found['status']} with {json.dumps(found['output'])}")
        return found

    def last_seen(self) -> str:
        """The run as it was when it was last looked at."""
        return timeline(self._run) if self._run else "no run has started"

    def _report(self, run: Mapping[str, Any]) -> int:
        sys.stdout.write(f"\n{timeline(run)}\nExecutions of each step body\n")
        for name, times in Counter(self._bodies_run()).items():
            sys.stdout.write(f"  {name:<22} {times}\n")
        sys.stdout.flush()
        if run["status"] != "completed" or not (
            isinstance(run["output"], dict) and run["output"].get("shipped") is True
        ):
            raise Failure(f"the run should have completed with shipped: true, it is {run['status']}: {run['error']}")
        return EXIT_OK

    async def _second_body_has_begun(self) -> bool:
        return len(set(self._bodies_run())) > 1

    def _bodies_run(self) -> list[str]:
        try:
            lines = self._bodies.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line)["step"] for line in lines]

    def _say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._began:6.2f} s  {text}\n")
        sys.stdout.flush()

    @asynccontextmanager
    async def _stack(self) -> AsyncIterator[dict[str, Any]]:
        """`runr dev` in the temporary home; yields what it says about itself."""
        async with _process(python_command("services.cli.main", "dev"), self._environ) as dev:

            async def up() -> bool:
                if dev.returncode is not None:
                    raise Failure("the stack did not start")
                return bool(self._home.recall("stack.json"))

            await _until(up)
            yield self._home.recall("stack.json")

    @asynccontextmanager
    async def _function(self, api: ApiClient) -> AsyncIterator[str]:
        """The example function with the project's signing key; yields its URL."""
        revealed = await api.call("GET", f"{APP}/signing-key")
        port = self._home.port("function")
        environ = {
            **self._environ,
            **_PACE,
            "RUNR_WORKFLOW_SIGNING_KEY": revealed["signing_key"],
            "ORDERS_LOG": str(self._bodies),
        }
        log = self._home.path / "function.log"
        async with _process([sys.executable, str(_EXAMPLE), "--port", str(port)], environ, log) as function:

            async def listens() -> bool:
                if function.returncode is not None:
                    raise Failure(f"the example function did not start:\n{log.read_text()}")
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    return False
                writer.close()
                return True

            await _until(listens)
            yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _process(
    command: list[str], environ: Mapping[str, str], log: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A child that is stopped afterwards; its own group, so that Ctrl-C lets us stop it in order."""
    with log.open("wb") if log else nullcontext() as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            preexec_fn=OURSELVES.preexec(signal.SIGTERM),
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(_POLL_S)


def _clean(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The caller's environment without what would point the stack elsewhere."""
    kept = {
        name: value
        for name, value in environ.items()
        if name not in ("DATABASE_URL", "NATS_URL") and (name in _KEPT or not name.startswith(_OUR_PREFIXES))
    }
    return {"RUNR_LOG_FORMAT": "text", **python_environ(kept), "RUNR_HOME": str(folder), PARENT_PIPE: "1"}
