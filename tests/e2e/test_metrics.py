"""What happened to events and runs is what the services tell Prometheus."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, Step, Workflows

from services.core.runtime.metric_table import METRICS
from tests.support.metrics import Samples, scrape
from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.transports import Transport
from tests.support.workflow_app import Bodies, serving

# Nothing of this kind happens in a quiet minute.
ACCIDENTS = {
    "runr_runs_recovered",
    "runr_duty_failures",
    "runr_function_errors",
    "runr_executor_processes",
}


def working(wf: Workflows, bodies: Bodies) -> None:
    def fail_once(ctx: Context) -> str:
        bodies.record(ctx.run_id, "flaky")
        if bodies.of(ctx.run_id)["flaky"] == 1:
            raise ValueError("not yet")
        return "well"

    @wf.workflow("measured", retries=3, triggers=[{"event": "measured.asked"}])
    def measured(ctx: Context, step: Step) -> str:
        step.run("flaky", fail_once, ctx)
        step.sleep("a-moment", "100ms")
        return "done"


async def test_runs_are_counted_where_they_happen(stack: Stack, rest: Rest, transport: Transport) -> None:
    before = await scrape(stack)
    async with serving(rest, working):
        started = await rest.start("measured")
        first = await rest.send("measured.asked", id="once")
        await rest.send("measured.asked", id="once")
        for run in (started, *first["runs"]):
            assert await rest.completed(run) == "done"

        async def counted() -> dict[str, Any]:
            now = await scrape(stack)
            return {name: _delta(before, now, *name.split(" ")) for name in EXPECTED}

        # What an executor counts of a commit may be a moment behind the answer about the run.
        await rest.until(counted, lambda counts: counts == EXPECTED)
        after = await scrape(stack)
    asked = "runr_function_call_duration_seconds_count"
    if transport == "http":
        assert after.sum(asked) - before.sum(asked) >= 4
    else:
        assert after.sum("runr_worker_streams") >= 1
    assert after.sum("runr_pipeline_batch_size_sum") - before.sum("runr_pipeline_batch_size_sum") >= 8
    assert after.sum("runr_timer_lateness_seconds_count") - before.sum("runr_timer_lateness_seconds_count") >= 2
    await rest.until(lambda: _missing(stack), lambda missing: missing <= ACCIDENTS)
    assert after.values("process_cpu_seconds_total", "service") == set()
    assert after.values("runr_event_loop_lag_seconds_count", "service") == {
        "gateway",
        "ingest",
        "scheduler",
        "executor",
    }


async def _missing(stack: Stack) -> set[str]:
    """Metrics that nobody tells: what the scheduler measures comes a moment after its start."""
    told = (await scrape(stack)).names
    return {metric.name for metric in METRICS if not any(name.startswith(metric.name) for name in told)}


EXPECTED = {
    "runr_events_accepted_total outcome=new": 1,
    "runr_events_accepted_total outcome=duplicate": 1,
    "runr_runs_started_total source=api": 1,
    "runr_runs_started_total source=event": 1,
    "runr_runs_ended_total status=completed": 2,
    "runr_step_failures_total": 2,
    "runr_step_executions_total": 6,
    "runr_http_requests_total method=POST status=201": 1,
}


def _delta(before: Samples, now: Samples, name: str, *labels: str) -> float:
    wanted = dict(label.split("=") for label in labels)
    return now.sum(name, **wanted) - before.sum(name, **wanted)
