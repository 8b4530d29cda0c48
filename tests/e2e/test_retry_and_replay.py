"""Runs that go on after their end, and runs that are done again."""

from __future__ import annotations

from typing import Any

from runr_workflows import Context, NonRetriableError, Step, StepError, Workflows

from tests.support.rest import Rest, step_of, steps_of
from tests.support.workflow_app import Bodies, serving


class Bug:
    """A fault in the code that a test repairs."""

    fixed = False


def failing(bug: Bug) -> Any:
    def register(wf: Workflows, bodies: Bodies) -> None:
        def body(ctx: Context, name: str, works: bool = True) -> str:
            bodies.record(ctx.run_id, name)
            if not works:
                raise NonRetriableError(f"{name} is broken")
            return name

        @wf.workflow("saga")
        def saga(ctx: Context, step: Step) -> list[str]:
            done = [step.run("reserve", body, ctx, "reserve")]
            try:
                step.run("charge", body, ctx, "charge", False)
            except StepError:
                done.append(step.run("release", body, ctx, "release"))
            return [*done, step.run("tell", body, ctx, "tell", bug.fixed)]

        @wf.workflow("patient", timeout="2s")
        def patient(ctx: Context, step: Step) -> Any:
            step.run("before", body, ctx, "before")
            event = step.wait_for_event("answer", "answered", timeout="1h")
            return event and event["data"]

    return register


def orders(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("order", triggers=[{"event": "order.created"}], idempotency="event.data.id")
    def order(ctx: Context, step: Step) -> dict[str, Any]:
        def body(name: str) -> str:
            bodies.record(ctx.run_id, name)
            return f"{name} of {ctx.run_id}"

        done = [step.run(name, body, name) for name in ("a", "b", "c")]
        return {"done": done, "event": ctx.event["id"], "data": ctx.event["data"], "replay": ctx.replay}


async def test_a_retry_goes_on_from_where_the_run_stopped(rest: Rest) -> None:
    bug = Bug()
    async with serving(rest, failing(bug)) as bodies:
        run = await rest.start("saga")
        assert (await rest.end(run))["status"] == "failed"
        bug.fixed = True
        await rest.ok("POST", f"/runs/{run}/retry", {})
        assert await rest.completed(run) == ["reserve", "release", "tell"]
        found = await rest.run(run)
        (await rest.call("POST", f"/runs/{run}/retry", {})).problem(409)
    # The failure that was caught and compensated stays; the one that ended the run is tried again.
    assert bodies.of(run) == {"reserve": 1, "charge": 1, "release": 1, "tell": 2}
    assert steps_of(found) == {"reserve": "completed", "charge": "failed", "release": "completed", "tell": "completed"}


async def test_what_was_open_begins_anew_and_the_clock_of_the_timeout_too(rest: Rest) -> None:
    async with serving(rest, failing(Bug())) as bodies:
        run = await rest.start("patient")
        assert (await rest.end(run))["status"] == "timed_out"
        await rest.ok("POST", f"/runs/{run}/retry", {})
        waiting = await rest.becomes(run, "waiting")
        assert step_of(waiting, "answer")["status"] == "waiting"
        (await rest.call("POST", f"/runs/{run}/retry", {})).problem(409)
        await rest.ok("POST", f"/runs/{run}/cancel", {})
        await rest.ok("POST", f"/runs/{run}/retry", {})
        await rest.becomes(run, "waiting")
        assert (await rest.send("answered", {"n": 1}))["resumed"] == 1
        assert await rest.completed(run) == {"n": 1}
    assert bodies.of(run) == {"before": 1}


async def test_a_replay_is_a_new_run_of_the_same_event(rest: Rest) -> None:
    async with serving(rest, orders) as bodies:
        (run,) = (await rest.send("order.created", {"id": "o-1"}))["runs"]
        first = await rest.completed(run)
        again = (await rest.ok("POST", f"/runs/{run}/replay", {}))["id"]
        second = await rest.completed(again)
        found = await rest.run(again)
        assert (await rest.run(run))["output"] == first
    assert again != run
    assert (found["source"], found["replay_of_run_id"], found["idempotency_key"]) == ("replay", run, None)
    assert (second["event"], second["data"], second["replay"]) == (first["event"], {"id": "o-1"}, True)
    assert bodies.of(again) == {"a": 1, "b": 1, "c": 1}


async def test_a_replay_from_a_step_keeps_the_results_before_it(rest: Rest) -> None:
    async with serving(rest, orders) as bodies:
        run = await rest.start("order", {"id": "o-1"})
        await rest.completed(run)
        again = (await rest.ok("POST", f"/runs/{run}/replay", {"from_step": "b"}))["id"]
        assert (await rest.completed(again))["done"] == [f"a of {run}", f"b of {again}", f"c of {again}"]
        (await rest.call("POST", f"/runs/{run}/replay", {"from_step": "nowhere"})).problem(422)
    assert bodies.of(again) == {"b": 1, "c": 1}


async def test_a_replay_may_have_other_data(rest: Rest) -> None:
    async with serving(rest, orders):
        run = await rest.start("order", {"id": "o-1"})
        first = await rest.completed(run)
        again = (await rest.ok("POST", f"/runs/{run}/replay", {"data": {"id": "o-2"}}))["id"]
        second = await rest.completed(again)
    assert (second["data"], second["event"]) == ({"id": "o-2"}, first["event"])
