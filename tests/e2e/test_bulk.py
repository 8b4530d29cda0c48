"""Many runs at once, over the whole stack: cancelled, then let go on, then done again, and counted."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest
from tests.support.workflow_app import Bodies, serving

RUNS = 12


def napping(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("napping", concurrency=[{"limit": 4}])
    def work(ctx: Context, step: Step) -> str:
        step.run("before", bodies.record, ctx.run_id, "before")
        if ctx.event["data"].get("nap"):
            step.wait_for_event("wake", "wake", timeout="1h")
        return "done"


async def job_done(rest: Rest, action: str, **wanted: Any) -> dict[str, Any]:
    """A job that was asked for, once it has ended."""
    job = await rest.ok("POST", f"/projects/{rest.project}/runs/bulk", {"action": action, "filter": wanted})
    path = f"/bulk-jobs/{job['id']}"
    job = await rest.until(lambda: rest.ok("GET", path), lambda found: found["ended_at"] is not None)
    assert (job["status"], job["skipped"], job["failed"]) == ("completed", 0, 0), job
    return dict(job)


async def test_many_runs_are_cancelled_retried_and_replayed(rest: Rest) -> None:
    async with serving(rest, napping):
        runs = [await rest.start("napping", {"nap": True}, tags=["many"]) for _ in range(RUNS)]
        for run in runs:
            await rest.becomes(run, "waiting")
        other = await rest.start("napping")
        cancelled = await job_done(rest, "cancel", tags=["many"])
        assert cancelled["succeeded"] == cancelled["total"] == RUNS
        assert {(await rest.end(run))["status"] for run in runs} == {"cancelled"}
        assert await rest.completed(other) == "done", "the cancelled ones are out of its way"

        assert (await job_done(rest, "retry", status="cancelled"))["succeeded"] == RUNS
        for run in runs:
            await rest.becomes(run, "waiting")
        await rest.send("wake")
        assert {await rest.completed(run) for run in runs} == {"done"}

        assert (await job_done(rest, "replay", workflow="napping", q=runs[0]))["succeeded"] == 1
        (replay,) = [run for run in await rest.runs() if run["replay_of_run_id"] == runs[0]]
        await rest.becomes(replay["id"], "waiting")
        await rest.send("wake")
        assert await rest.completed(replay["id"]) == "done"
        usage = await rest.ok("GET", "/workflow-usage")
    assert usage["total"]["runs"] == RUNS + 2
    assert usage["total"]["steps"] == RUNS * (1 + 2) + 1 + 2, "a wait that starts anew is executed anew"
