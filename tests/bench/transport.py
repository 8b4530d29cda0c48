"""How the engine reaches the benchmark's function: one entry for each transport."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from services.core.engine.bootstrap import DEFAULT_TENANT
from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home
from tests.bench.child import NotReady, free_port, listens, running, tail, until
from tests.bench.lean_client import LeanClient
from tests.bench.stack import Attach, BenchStack

_APP = "/api/projects/default/workflows/app"
_LOG = "function.log"
_KNOWN_S = 30.0


async def over_http(stack: BenchStack, closing: AsyncExitStack) -> None:
    """The function listens, the engine posts to it."""
    port = await _function(stack, closing)
    await register(stack.client, port)


async def register(client: LeanClient, port: int) -> None:
    """Makes a function that listens on `port` the one of the caller's default project. Raises NotReady."""
    await client.call("PATCH", _APP, {"endpoint_url": f"http://127.0.0.1:{port}/"})
    synced = (await client.call("POST", "/api/projects/default/workflows/sync", {}))["sync"]
    if synced["status"] != "synced":
        raise NotReady(f"the function was not synced: {synced['message']}")


async def over_stream(stack: BenchStack, closing: AsyncExitStack) -> None:
    """The function connects to the executor as a worker, and declares its workflows in doing so."""
    await _function(stack, closing, f"127.0.0.1:{Home(stack.home).recall('ports.json')['executor']}")

    async def known() -> bool:
        found = await stack.client.call("GET", "/api/projects/default/workflows")
        return any(workflow["name"] == "chain" for workflow in found["data"])

    await until(known, within_s=_KNOWN_S, what=f"the worker is connected: {tail(stack.home / _LOG)}")


@dataclass(frozen=True, slots=True)
class Function:
    """A process of the function, and the port that it listens on."""

    pid: int
    port: int


async def start_function(client: LeanClient, home: Path, closing: AsyncExitStack, *arguments: str) -> Function:
    """Starts a function with the signing key of the caller's default project."""
    key = (await client.call("GET", f"{_APP}/signing-key"))["signing_key"]
    port, log = free_port(), home / _LOG
    environ = {**python_environ(os.environ), "RUNR_WORKFLOW_SIGNING_KEY": key, "RUNR_TENANT": DEFAULT_TENANT}
    command = python_command("tests.bench.function", str(port), *arguments)
    process = await closing.enter_async_context(running(command, environ=environ, log=log))
    await listens(process, port, log)
    return Function(process.pid, port)


async def _function(stack: BenchStack, closing: AsyncExitStack, *arguments: str) -> int:
    """Starts the stack's function; the port that it listens on."""
    function = await start_function(stack.client, stack.home, closing, *arguments)
    stack.function = function.pid
    stack.marks_of = await closing.enter_async_context(LeanClient(f"http://127.0.0.1:{function.port}"))
    return function.port


TRANSPORTS: Mapping[str, Attach] = {"http": over_http, "stream": over_stream}
