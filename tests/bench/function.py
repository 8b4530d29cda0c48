"""The function that is benchmarked with: the Python SDK with its own server, in a process of its own.

    python -m tests.bench.function PORT [EXECUTOR]

It listens on PORT; with the address of an executor it also connects there as a worker, and the engine sends it nothing
over HTTP.
Bodies do nothing but note when they ran. The request "marks" is answered with what was noted since the last time,
"executed" with how many bodies of steps.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import uvloop
from runr_workflows import AsyncStep, Context, Workflows
from runr_workflows.serving.loop_server import LoopServer

# As many as the executor holds runs at once.
_WORKER_SLOTS = 256


class Marks:
    """What bodies noted. Times are unix seconds, `steps` are (run, place, time), one for each execution of a body."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, int, float]] = []
        self.late: list[float] = []
        self._asleep: dict[str, float] = {}

    async def step(self, run: str, place: int) -> dict[str, int]:
        """The body of every step."""
        self.steps.append((run, place, time.time()))
        return {"i": place}

    def begins(self, run: str) -> None:
        """A sleeper's body begins; the first time counts."""
        self._asleep.setdefault(run, time.time())

    def wakes(self, run: str, slept_s: float) -> None:
        """A sleeper goes on."""
        self.late.append(time.time() - self._asleep.pop(run) - slept_s)

    def take(self) -> dict[str, Any]:
        """What was noted since the last time."""
        taken = {"steps": self.steps, "late": self.late}
        self.steps, self.late = [], []
        return taken


def workflows(marks: Marks) -> Workflows:
    """The workflows of all workloads."""
    wf = Workflows()

    @wf.workflow("chain", triggers=[{"event": "bench.chain"}], retries=20, timeout="1h")
    async def chain(ctx: Context, step: AsyncStep) -> None:
        for place in range(ctx.event["data"]["steps"]):
            await step.run(f"s{place}", marks.step, ctx.run_id, place)

    # The same, with many steps in one answer.
    wf.workflow("checkpointed", retries=20, timeout="1h", checkpoint={"max_steps": 100, "max_time": "1s"})(chain)

    @wf.workflow("accept", triggers=[{"event": "bench.accept"}])
    async def accept(ctx: Context, step: AsyncStep) -> None:
        """Ends at once: only its start is measured."""

    @wf.workflow("sleeper", triggers=[{"event": "bench.sleep"}], timeout="2d")
    async def sleeper(ctx: Context, step: AsyncStep) -> None:
        seconds = ctx.event["data"]["s"]
        marks.begins(ctx.run_id)
        await step.sleep("z", seconds)
        marks.wakes(ctx.run_id, seconds)

    @wf.workflow("waiter", triggers=[{"event": "bench.wait"}])
    async def waiter(ctx: Context, step: AsyncStep) -> Any:
        event = await step.wait_for_event("go", "bench.go", match="data.key", timeout="1h")
        return event["data"] if event else None

    @wf.workflow("child")
    async def child(ctx: Context, step: AsyncStep) -> Any:
        return await step.run("s", marks.step, ctx.run_id, ctx.event["data"]["i"])

    @wf.workflow("parent")
    async def parent(ctx: Context, step: AsyncStep) -> int:
        calls = [step.invoke("child", child, data={"i": place}) for place in range(ctx.event["data"]["children"])]
        return len(await asyncio.gather(*calls))

    return wf


class Answerer:
    """What the function's server answers: the engine's requests, and questions about the marks."""

    def __init__(self, wf: Workflows, marks: Marks) -> None:
        self._wf = wf
        self._marks = marks

    async def __call__(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """One request."""
        if body == b'"marks"':
            return 200, json.dumps(self._marks.take()).encode()
        if body == b'"executed"':
            return 200, json.dumps(len(self._marks.steps)).encode()
        return await self._wf.handle_request_async(body, headers)


async def serve(port: int, executor: str | None) -> None:
    """Serves until SIGTERM."""
    marks = Marks()
    wf = workflows(marks)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with LoopServer(Answerer(wf, marks), "127.0.0.1", port), AsyncExitStack() as connected:
        if executor is not None:
            await connected.enter_async_context(wf.connection(executor, max_concurrency=_WORKER_SLOTS))
        await stopped.wait()


def main(port: int, executor: str | None = None) -> None:
    """The process, tuned as the page on serving functions says."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(serve(port, executor))


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
