"""An executor that stands still past its lease: others take its runs, and what it says later is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from runr_workflows import Context, Step, Workflows

from tests.support import invariants
from tests.support.rest import step_of
from tests.support.stack import Servers, Stack
from tests.support.workflow_app import Bodies, serving

RUNS = 12


@pytest.fixture
async def pair(servers: Servers) -> AsyncIterator[Stack]:
    """Two executors with short leases."""
    leases = {"WORKFLOWS_LEASE_TTL": "4s", "WORKFLOWS_HEARTBEAT": "300ms"}
    async with Stack(servers, settings=leases, replicas={"executor": 2}) as stack:
        yield stack
        await invariants.check(stack.database_url)


def holding(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("held", retries=3)
    def held(ctx: Context, step: Step) -> int:
        def work() -> int:
            nth = bodies.of(ctx.run_id)["work"] + 1
            bodies.record(ctx.run_id, "work")
            return nth

        step.run("before", bodies.record, ctx.run_id, "before")
        nth = step.run("work", work)
        step.run("after", bodies.record, ctx.run_id, "after")
        return nth


async def test_what_it_says_late_is_fenced(pair: Stack) -> None:
    frozen, other = pair.children["executor"], pair.children["executor-2"]
    async with pair.tenant() as rest, serving(rest, holding) as bodies:
        # The first takes all runs while the second is frozen, then they change roles.
        other.freeze()
        bodies.hold("work")
        runs = [await rest.start("held") for _ in range(RUNS)]
        for run in runs:
            await bodies.reached(run, "work")
        other.thaw()
        frozen.freeze()
        for run in runs:
            await bodies.reached(run, "work", times=2)
        # Both bodies of each run answer now: the second to the living holder, the first to the frozen one.
        bodies.let_go()
        outputs = await asyncio.gather(*(rest.completed(run) for run in runs))
        before = [await rest.run(run) for run in runs]
        frozen.thaw()
        # It finds out, takes a new name, and is of use again: now it is alone.
        await pair.kill("executor-2")
        await frozen.ready()
        again = await rest.start("held")
        assert await rest.completed(again) == 1
        after = [await rest.run(run) for run in runs]
    assert after == before
    assert outputs == [2] * RUNS
    for found in after:
        assert bodies.of(found["id"]) == {"before": 1, "work": 2, "after": 1}
        assert len(step_of(found, "work")["attempts"]) == 1
        assert [each["error"]["name"] for each in found["attempts"]] == ["WorkerLost"]
    fenced = [line for line in frozen.log_lines() if "declared dead" in line]
    assert len(fenced) == 1
