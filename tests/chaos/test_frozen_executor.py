"""An executor that stands still past its lease: others take its runs, and what it says later is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from runr_workflows import Context, Step, Workflows

from tests.support import invariants
from tests.support.rest import Rest, step_of
from tests.support.stack import Servers, Stack
from tests.support.transports import TRANSPORTS, Transport
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


async def reached(bodies: Bodies, runs: list[str], step: str, times: int = 1) -> None:
    for run in runs:
        await bodies.reached(run, step, times)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_what_it_says_late_is_fenced(servers: Servers, transport: Transport) -> None:
    holding = Holding()
    async with pair(servers, UNAWARE) as stack, stack.tenant(transport) as rest, serving(rest, holding) as bodies:
        frozen, other = stack.children["executor"], stack.children["executor-2"]
        # The first takes all runs while the second is frozen, then they change roles.
        other.freeze()
        bodies.hold("work")
        bodies.hold("after")
        runs = [await rest.start("held") for _ in range(RUNS)]
        await reached(bodies, runs, "work")
        other.thaw()
        frozen.freeze()
        await reached(bodies, runs, "work", times=2)
        # Both bodies of each run answer: the second to the living holder, the first to the frozen one.
        bodies.let_go("work")
        await reached(bodies, runs, "after")
        frozen.thaw()
        await holding.tried(rest)
        bodies.let_go("after")
        assert await asyncio.gather(*(rest.completed(run) for run in runs)) == [2] * RUNS
        for run in runs:
            found = await rest.run(run)
            assert bodies.of(run) == {"before": 1, "work": 2, "after": 1}
            assert len(step_of(found, "work")["attempts"]) == 1
            assert [each["error"]["name"] for each in found["attempts"]] == ["WorkerLost"]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_it_finds_out_and_begins_a_new_life(servers: Servers, transport: Transport) -> None:
    async with pair(servers, SHORT) as stack, stack.tenant(transport) as rest, serving(rest, Holding()) as bodies:
        frozen, other = stack.children["executor"], stack.children["executor-2"]
        other.freeze()
        bodies.hold("work")
        run = await rest.start("held")
        await bodies.reached(run, "work")
        other.thaw()
        frozen.freeze()
        await bodies.reached(run, "work", times=2)
        bodies.let_go("work")
        assert await rest.completed(run) == 2
        frozen.thaw()
        # Now it is alone, and of use again under a new name.
        await stack.kill("executor-2")
        await frozen.ready()
        assert await rest.completed(await rest.start("held")) == 1
        assert len([line for line in frozen.log_lines() if "declared dead" in line]) == 1
