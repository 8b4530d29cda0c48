"""Cancelling: at rest, in the middle of a step, by an event, and too late."""

from __future__ import annotations

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest, steps_of
from tests.support.workflow_app import Bodies, serving


def slow(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow(
        "slow",
        cancel_on=[
            {"event": "slow.stop", "if": "event.data.id == async.data.id"},
            {"event": "slow.stop-early", "timeout": "1s"},
        ],
    )
    def work(ctx: Context, step: Step) -> str:
        step.run("before", bodies.record, ctx.run_id, "before")
        step.sleep("nap", ctx.event["data"].get("nap", 0))
        step.run("work", bodies.record, ctx.run_id, "work")
        step.run("after", bodies.record, ctx.run_id, "after")
        return "done"


async def test_a_sleeping_run_is_cancelled_and_stays_so(rest: Rest) -> None:
    async with serving(rest, slow) as bodies:
        run = await rest.start("slow", {"nap": "1h"})
        await rest.becomes(run, "sleeping")
        cancelled = await rest.ok("POST", f"/runs/{run}/cancel", {})
        assert cancelled["status"] == "cancelled"
        found = await rest.end(run)
        again = await rest.call("POST", f"/runs/{run}/cancel", {})
    assert steps_of(found) == {"before": "completed", "nap": "cancelled"}
    assert found["ended_at"] is not None
    assert bodies.of(run) == {"before": 1}
    again.problem(409)


async def test_the_answer_of_a_step_in_flight_is_discarded(rest: Rest) -> None:
    async with serving(rest, slow) as bodies:
        bodies.hold("work")
        run = await rest.start("slow")
        await bodies.reached(run, "work")
        await rest.ok("POST", f"/runs/{run}/cancel", {})
        found = await rest.end(run)
        bodies.let_go("work")
        # The executor is told, hangs up, and is free for the next run.
        assert await rest.completed(await rest.start("slow")) == "done"
        later = await rest.run(run)
    assert found["status"] == later["status"] == "cancelled"
    assert steps_of(later) == {"before": "completed", "nap": "completed"}
    assert bodies.of(run) == {"before": 1, "work": 1}


async def test_an_event_cancels_the_runs_it_means(rest: Rest) -> None:
    async with serving(rest, slow):
        mine = await rest.start("slow", {"nap": "1h", "id": 1})
        other = await rest.start("slow", {"nap": "1h", "id": 2})
        for run in (mine, other):
            await rest.becomes(run, "sleeping")
        assert (await rest.send("slow.stop", {"id": 1}))["cancelled"] == 1
        assert (await rest.end(mine))["status"] == "cancelled"
        assert (await rest.run(other))["status"] == "sleeping"
        await rest.ok("POST", f"/runs/{other}/cancel", {})


async def test_a_queued_run_that_nobody_serves_can_be_cancelled(rest: Rest) -> None:
    async with serving(rest, slow):
        run = await rest.start("slow", delay="1h")
        assert (await rest.run(run))["status"] == "queued"
        await rest.ok("POST", f"/runs/{run}/cancel", {})
        assert (await rest.end(run))["started_at"] is None


async def test_cancel_on_with_a_timeout_holds_only_that_long(rest: Rest) -> None:
    async with serving(rest, slow):
        early = await rest.start("slow", {"nap": "1h"})
        late = await rest.start("slow", {"nap": "1500ms"})
        assert (await rest.send("slow.stop-early"))["cancelled"] == 2
        assert [(await rest.end(run))["status"] for run in (early, late)] == ["cancelled"] * 2
        patient = await rest.start("slow", {"nap": "1500ms"})
        await rest.becomes(patient, lambda found: steps_of(found).get("nap") == "completed")
        assert (await rest.send("slow.stop-early"))["cancelled"] == 0
        assert await rest.completed(patient) == "done"
