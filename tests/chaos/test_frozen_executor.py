"""An executor that stands still past its lease: others take its runs, and what it says later is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from runr_workflows import Context, Step, Workflows

from tests.support import invariants
from tests.support.rest import Rest, step_of
from tests.support.stack import Servers, Stack
from tests.support.transports import TRANSPORTS
from tests.support.workflow_app import Bodies, serving, sync

RUNS = 12
SHORT = {"WORKFLOWS_LEASE_TTL": "4s", "WORKFLOWS_HEARTBEAT": "300ms"}
# It does not find out by itself that its lease is over.
UNAWARE = {"WORKFLOWS_LEASE_TTL": "60s", "WORKFLOWS_HEARTBEAT": "15s"}


@asynccontextmanager
async def pair(servers: Servers, own: dict[str, str]) -> AsyncIterator[Stack]:
    """Two executors with short leases, the first with settings of its own."""
    async with Stack(servers, settings=SHORT, replicas={"executor": 2}, own={"executor": own}) as stack:
        yield stack
        await invariants.check(stack.database_url)


class Holding:
    """Registers a workflow whose steps a test holds. `unwound`: runs of which an invocation was given up in `work`."""

    def __init__(self) -> None:
        self.unwound: set[str] = set()

    def __call__(self, wf: Workflows, bodies: Bodies) -> None:
        @wf.workflow("held", retries=3)
        def held(ctx: Context, step: Step) -> int:
            def work() -> int:
                nth = bodies.of(ctx.run_id)["work"] + 1
                bodies.record(ctx.run_id, "work")
                return nth

            step.run("before", bodies.record, ctx.run_id, "before")
            try:
                nth = step.run("work", work)
            except BaseException:
                self.unwound.add(ctx.run_id)
                raise
            step.run("after", bodies.record, ctx.run_id, "after")
            return nth

    async def tried(self, rest: Rest) -> None:
        """Wait until who was frozen has tried to commit what it heard: by the time that it has answered something else,
        or until it has told its worker about each run that nobody wants to hear.
        """
        if rest.transport == "http":
            await sync(rest)
            return

        async def told() -> int:
            return len(self.unwound)

        await rest.until(told, lambda runs: runs == RUNS)


@dataclass(frozen=True)
class Side:
    """A tenant whose code is reached over one of the transports, and what becomes of its runs."""

    rest: Rest
    bodies: Bodies
    holding: Holding
    runs: list[str]

    async def start(self, count: int) -> None:
        """Start runs, of which each will be held in `work`."""
        self.bodies.hold("work")
        self.runs.extend([await self.rest.start("held") for _ in range(count)])

    async def reached(self, step: str, times: int = 1) -> None:
        """Wait until each run has begun this step so many times."""
        for run in self.runs:
            await self.bodies.reached(run, step, times)

    async def completed(self) -> list[int]:
        """Wait for the end of each run; their outputs."""
        return list(await asyncio.gather(*(self.rest.completed(run) for run in self.runs)))


@asynccontextmanager
async def on_both_sides(stack: Stack) -> AsyncIterator[list[Side]]:
    """One side for each transport: what befalls the executors befalls both."""
    async with AsyncExitStack() as opened:
        sides = []
        for transport in TRANSPORTS:
            holding = Holding()
            rest = await opened.enter_async_context(stack.tenant(transport))
            bodies = await opened.enter_async_context(serving(rest, holding))
            sides.append(Side(rest, bodies, holding, []))
        yield sides


async def test_what_it_says_late_is_fenced(servers: Servers) -> None:
    async with pair(servers, UNAWARE) as stack, on_both_sides(stack) as sides:
        frozen, other = stack.children["executor"], stack.children["executor-2"]
        # The first takes all runs while the second is frozen, then they change roles.
        other.freeze()
        for side in sides:
            side.bodies.hold("after")
            await side.start(RUNS)
        for side in sides:
            await side.reached("work")
        other.thaw()
        frozen.freeze()
        for side in sides:
            await side.reached("work", times=2)
        # Both bodies of each run answer: the second to the living holder, the first to the frozen one.
        for side in sides:
            side.bodies.let_go("work")
            await side.reached("after")
        frozen.thaw()
        for side in sides:
            await side.holding.tried(side.rest)
            side.bodies.let_go("after")
            assert await side.completed() == [2] * RUNS
            for run in side.runs:
                found = await side.rest.run(run)
                assert side.bodies.of(run) == {"before": 1, "work": 2, "after": 1}
                assert len(step_of(found, "work")["attempts"]) == 1
                assert [each["error"]["name"] for each in found["attempts"]] == ["WorkerLost"]


async def test_it_finds_out_and_begins_a_new_life(servers: Servers) -> None:
    async with pair(servers, SHORT) as stack, on_both_sides(stack) as sides:
        frozen, other = stack.children["executor"], stack.children["executor-2"]
        other.freeze()
        for side in sides:
            await side.start(1)
            await side.reached("work")
        other.thaw()
        frozen.freeze()
        for side in sides:
            await side.reached("work", times=2)
        for side in sides:
            side.bodies.let_go("work")
            assert await side.completed() == [2]
        frozen.thaw()
        # Now it is alone, and of use again under a new name.
        await stack.kill("executor-2")
        await frozen.ready()
        for side in sides:
            assert await side.rest.completed(await side.rest.start("held")) == 1
        assert len([line for line in frozen.log_lines() if "declared dead" in line]) == 1
