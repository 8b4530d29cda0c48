"""A real SDK app in the process of the test, over HTTP or the worker stream, whose step bodies the test can see, count
and hold.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from runr_workflows import Workflows
from runr_workflows.serving.server import Server

from tests.support.rest import Rest

_REACHED_S = 90.0
_HELD_S = 120.0
_GRACE_S = 10.0
_AT_ONCE = 1_000


class Body(NamedTuple):
    """One execution of a step body. `at` is unix seconds."""

    run: str
    step: str
    at: float


class Bodies:
    """What step bodies did. Bodies run in threads of the app, tests in the event loop."""

    def __init__(self) -> None:
        self._done: list[Body] = []
        self._changed = threading.Condition()
        self._gates: dict[str, threading.Event] = {}

    def record(self, run: str, step: str) -> None:
        """Called by a body that begins. Blocks while the test holds this step."""
        with self._changed:
            self._done.append(Body(run, step, time.time()))
            gate = self._gates.get(step)
            self._changed.notify_all()
        if gate is not None and not gate.wait(_HELD_S):
            raise RuntimeError(f"the test never let go of {step}")

    def hold(self, step: str) -> None:
        """From now on bodies of this step wait until `let_go`."""
        self._gates[step] = threading.Event()

    def let_go(self, step: str | None = None) -> None:
        """Bodies of this step, or of all, go on."""
        for name in [step] if step else list(self._gates):
            self._gates.pop(name).set()

    @property
    def all(self) -> list[Body]:
        """Every execution so far, in order."""
        with self._changed:
            return list(self._done)

    def of(self, run: str) -> Counter[str]:
        """Step → executions, of one run."""
        return Counter(body.step for body in self.all if body.run == run)

    def times(self, run: str, step: str) -> list[float]:
        """When the bodies of one step began, unix seconds."""
        return [body.at for body in self.all if (body.run, body.step) == (run, step)]

    async def until(self, holds: Callable[[list[Body]], bool], *, timeout_s: float = _REACHED_S) -> None:
        """Wait until the executions are as the test wants them."""

        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: holds(self._done), timeout_s)

        assert await asyncio.to_thread(wait), f"not so within {timeout_s:g} s; the bodies were {self.all[-20:]}"

    async def reached(self, run: str, step: str, times: int = 1) -> None:
        """Wait until a step of a run has been executed so many times, counting the one that runs."""
        await self.until(lambda done: sum((body.run, body.step) == (run, step) for body in done) >= times)


Register = Callable[[Workflows, Bodies], None]


@asynccontextmanager
async def serving(rest: Rest, register: Register, *, middleware: Sequence[object] = ()) -> AsyncIterator[Bodies]:
    """The workflows that `register` defines, known to the client's project and served over the client's transport."""
    workflows = await registry(rest, middleware=middleware)
    bodies = Bodies()
    register(workflows, bodies)
    async with served(rest, workflows):
        try:
            yield bodies
        finally:
            bodies.let_go()


@asynccontextmanager
async def served(rest: Rest, workflows: Workflows) -> AsyncIterator[None]:
    """A registry with the key of the client's project, served over the client's transport, and closed in the end."""
    reached = _connected if rest.transport == "stream" else _listening
    try:
        async with reached(rest, workflows):
            yield
    finally:
        workflows.close()


async def registry(rest: Rest, *, middleware: Sequence[object] = ()) -> Workflows:
    """A registry with the key of the client's project."""
    return Workflows(signing_key=await signing_key(rest), signing_key_fallback="", middleware=middleware)


async def signing_key(rest: Rest) -> str:
    """The signing key of the client's project."""
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    return str(shown["signing_key"])


@asynccontextmanager
async def _connected(rest: Rest, workflows: Workflows) -> AsyncIterator[None]:
    """A worker at each executor, on the loop of the test. Bodies that a test holds must be sync: those have threads."""
    async with AsyncExitStack() as connections:
        for url in rest.worker_urls:
            connection = workflows.connection(
                url, tenant=rest.tenant, project=rest.project, drain_seconds=_GRACE_S, max_concurrency=_AT_ONCE
            )
            await connections.enter_async_context(connection)
        yield


@asynccontextmanager
async def _listening(rest: Rest, workflows: Workflows) -> AsyncIterator[None]:
    """A server in a thread, known to the project, and synced."""
    server = Server(workflows.handle_request, "127.0.0.1", 0)
    server.start()
    try:
        await rest.ok(
            "PATCH",
            f"/projects/{rest.project}/workflows/app",
            {"endpoint_url": f"http://127.0.0.1:{server.port}"},
        )
        await sync(rest)
        yield
    finally:
        await asyncio.to_thread(server.stop, _GRACE_S)


async def sync(rest: Rest) -> list[str]:
    """Sync the project's workflows; their names."""
    synced = await rest.ok("POST", f"/projects/{rest.project}/workflows/sync", {})
    assert synced["sync"]["status"] == "synced", synced
    return [workflow["name"] for workflow in synced["workflows"]]
