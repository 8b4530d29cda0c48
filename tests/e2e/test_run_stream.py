"""A run is followed by Server-Sent Events while services come and go, and nothing of it is missed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from runr_workflows import Context, Step, Workflows

from tests.support.rest import END_S, Json, Rest
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="the stream tells what is stored, however it was executed")


def gated(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("gated", retries=0)
    def work(ctx: Context, step: Step) -> str:
        for name in ("a", "b", "c", "d"):
            step.run(name, bodies.record, ctx.run_id, name)
            step.wait_for_event(f"after-{name}", "go", match="data.id", timeout="1h")
        return "done"


@dataclass
class Follower:
    """What a browser does: it follows a stream, and comes again behind its last event when it loses it."""

    rest: Rest
    run: str
    connections: int = 0
    last_id: str = ""
    steps: dict[str, Json] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    state: Json = field(default_factory=dict)
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)
    done: bool = False

    async def follow(self) -> None:
        """Returns when the server says that there is no more to come."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_read=END_S)) as session:
            while not self.done:
                with contextlib.suppress(aiohttp.ClientError):
                    await self._once(session)
                await asyncio.sleep(0.1)

    async def _once(self, session: aiohttp.ClientSession) -> None:
        headers = {"Authorization": f"Bearer {self.rest.token}"}
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        async with session.get(f"{self.rest.base}/api/runs/{self.run}/stream", headers=headers) as answer:
            self.connections += answer.status == 200
            self.done = answer.status == 204
            fields: dict[str, str] = {}
            async for line in answer.content:
                name, _, value = line.decode().removesuffix("\n").partition(": ")
                if value:
                    fields[name] = value
                elif "data" in fields:
                    await self._take(json.loads(fields["data"]))
                    self.last_id = fields.get("id", self.last_id)
                    fields = {}

    async def _take(self, change: Json) -> None:
        async with self.moved:
            if change["whole"]:
                self.steps.clear()
            for step in change["steps"]:
                self.steps[step["id"]] = step
                self.told.append((step["id"], step["status"]))
            self.state = change["run"]
            self.moved.notify_all()

    async def sees(self, step: str, status: str) -> None:
        async with asyncio.timeout(END_S), self.moved:
            await self.moved.wait_for(lambda: self.steps.get(step, {}).get("status") == status)


async def test_a_follower_misses_nothing_while_services_come_and_go(stack: Stack, rest: Rest) -> None:
    async def go_on(name: str) -> None:
        await follower.sees(f"after-{name}", "waiting")
        assert (await rest.send("go", {"id": 1}))["resumed"] == 1

    async with serving(rest, gated):
        run = await rest.start("gated", {"id": 1})
        follower = Follower(rest, run)
        following = asyncio.create_task(follower.follow())
        await go_on("a")
        await follower.sees("after-b", "waiting")

        await replaced(stack, "ingest", signal.SIGTERM)
        await go_on("b")
        await follower.sees("after-c", "waiting")
        await replaced(stack, "gateway", signal.SIGTERM)
        await go_on("c")
        await follower.sees("after-d", "waiting")
        await stack.kill("ingest")
        await stack.start("ingest")
        await go_on("d")
        async with asyncio.timeout(END_S):
            await following
        found = await rest.run(run)
    assert list(follower.steps.values()) == found["steps"]
    assert (follower.state["status"], follower.state["output"]) == ("completed", "done")
    # Not all is told again whenever a connection was lost.
    assert follower.told.count(("a", "completed")) <= follower.connections


async def replaced(stack: Stack, name: str, signal_: signal.Signals) -> None:
    """The service drains, ends, and is there again."""
    stack.children[name].kill(signal_)
    assert await stack.children[name].ended() == 0
    await stack.start(name)


async def test_of_another_tenants_run_nothing_is_told(stack: Stack, rest: Rest) -> None:
    async with serving(rest, gated), stack.tenant("http") as stranger:
        run = await rest.start("gated", {"id": 2})
        reply: Any = await stranger.call("GET", f"/runs/{run}/stream")
        assert reply.problem(404)["detail"] == f"there is no run {run}"
        await rest.ok("POST", f"/runs/{run}/cancel")
