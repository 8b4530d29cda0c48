"""Services come and go in order: nothing is lost, and no attempt is counted for a drain."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest, step_of, steps_of
from tests.support.stack import Stack
from tests.support.workflow_app import Bodies, serving


def patient(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("patient", triggers=[{"event": "patient.begun"}], retries=0)
    def work(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("one", bodies.record, ctx.run_id, "one")
        step.sleep("nap", ctx.event["data"].get("nap", 0))
        event = step.wait_for_event("go", "patient.go", match="data.id", timeout="1h")
        step.run("two", bodies.record, ctx.run_id, "two")
        return {"event": event and event["data"]["n"]}

    @wf.workflow("busy", retries=0)
    def busy(ctx: Context, step: Step) -> str:
        for name in ("first", "held", "last"):
            step.run(name, bodies.record, ctx.run_id, name)
        return "done"


async def test_everything_is_still_there_after_a_restart(stack: Stack, rest: Rest) -> None:
    async with serving(rest, patient) as bodies:
        waiting = await rest.start("patient", {"id": 1})
        sleeping = await rest.start("patient", {"id": 2, "nap": "3s"})
        delayed = await rest.start("patient", {"id": 3}, delay="3s")
        done = await rest.start("busy")
        await rest.completed(done)
        await rest.becomes(waiting, "waiting")
        await rest.becomes(sleeping, "sleeping")
        before = await rest.run(done)
        first = await rest.send("patient.begun", {"id": 9}, id="e-9")

        await stack.restart()

        assert await rest.run(done) == before
        assert (await rest.send("patient.begun", {"id": 9}, id="e-9"))["duplicate"] is True
        runs = [waiting, sleeping, delayed, *first["runs"]]
        for run in runs:
            await rest.becomes(run, "waiting")
        for id in (1, 2, 3, 9):
            assert (await rest.send("patient.go", {"id": id, "n": id}))["resumed"] == 1
        outputs = await asyncio.gather(*(rest.completed(run) for run in runs))
        found = [await rest.run(run) for run in runs]
    assert outputs == [{"event": id} for id in (1, 2, 3, 9)]
    assert [bodies.of(run) for run in runs] == [{"one": 1, "two": 1}] * 4
    assert all(each["attempts"] == [] for each in found)


async def test_a_drain_waits_for_the_step_in_flight_and_counts_no_attempt(stack: Stack, rest: Rest) -> None:
    executor = stack.children["executor"]
    async with serving(rest, patient) as bodies:
        bodies.hold("held")
        run = await rest.start("busy")
        await bodies.reached(run, "held")
        executor.kill(signal.SIGTERM)
        # It takes no more runs meanwhile.
        other = await rest.start("busy")
        bodies.let_go("held")
        assert await executor.ended() == 0
        between = await rest.run(run)
        assert (await rest.run(other))["status"] == "queued"
        await stack.start("executor")
        assert [await rest.completed(each) for each in (run, other)] == ["done"] * 2
        found = await rest.run(run)
    assert (between["status"], steps_of(between)) == ("queued", {"first": "completed", "held": "completed"})
    assert found["attempts"] == []
    assert [len(step_of(found, name)["attempts"]) for name in ("first", "held", "last")] == [1, 1, 1]
    assert bodies.of(run) == {"first": 1, "held": 1, "last": 1}


async def test_a_drain_that_cannot_wait_gives_the_run_back_uncounted(stack: Stack, rest: Rest) -> None:
    """The step outlasts the grace of the drain: the run is let go, and its step runs again elsewhere; but for a worker,
    who keeps the step and brings it along.
    """
    executor = stack.children["executor"]
    async with serving(rest, patient) as bodies:
        bodies.hold("held")
        run = await rest.start("busy")
        await bodies.reached(run, "held")
        executor.kill(signal.SIGTERM)
        await executor.ended()
        status, times = {"http": ("queued", 2), "stream": ("running", 1)}[rest.transport]
        assert (await rest.run(run))["status"] == status
        executor.start()
        await bodies.reached(run, "held", times)
        bodies.let_go("held")
        await stack.ready("executor")
        assert await rest.completed(run) == "done"
        found = await rest.run(run)
    assert found["attempts"] == []
    assert bodies.of(run) == {"first": 1, "held": times, "last": 1}
