"""Steps and runs that fail: tried again, caught and compensated, or failed for good."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from runr_workflows import Context, NonRetriableError, RetryAfterError, Step, StepError, Workflows

from tests.support.rest import Json, Rest, step_of, steps_of
from tests.support.workflow_app import Bodies, serving


class CardDeclined(Exception):
    """Raised by bodies."""


def failing(wf: Workflows, bodies: Bodies) -> None:
    def flaky(ctx: Context, step: str, error: Exception) -> int:
        """Fails as often as the event says."""
        bodies.record(ctx.run_id, step)
        done = bodies.of(ctx.run_id)[step]
        if done <= ctx.event["data"]["failures"]:
            raise error
        return done

    @wf.workflow("backoff")
    def backoff(ctx: Context, step: Step) -> int:
        return step.run("charge", flaky, ctx, "charge", CardDeclined("try later"))

    @wf.workflow("retry-after")
    def retry_after(ctx: Context, step: Step) -> int:
        return step.run("charge", flaky, ctx, "charge", RetryAfterError("busy", "300ms"))

    @wf.workflow("outside")
    def outside(ctx: Context, step: Step) -> int:
        step.run("before", bodies.record, ctx.run_id, "before")
        return flaky(ctx, "outside", RetryAfterError("not yet", "100ms"))

    @wf.workflow("saga")
    def saga(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("reserve", bodies.record, ctx.run_id, "reserve")
        try:
            step.options(retries=1).run("charge", flaky, ctx, "charge", RetryAfterError("declined", 0))
        except StepError as error:
            step.run("release", bodies.record, ctx.run_id, "release")
            return {"failed": error.step_id, "name": error.name, "message": error.message}
        return {"failed": None}

    @wf.workflow("hopeless", retries=5)
    def hopeless(ctx: Context, step: Step) -> None:
        step.run("charge", flaky, ctx, "charge", NonRetriableError("no such card"))

    @wf.workflow("crashing", retries=0)
    def crashing(ctx: Context, step: Step) -> None:
        step.run("before", bodies.record, ctx.run_id, "before")
        raise CardDeclined("outside of any step")


def attempts(shown: Json) -> list[tuple[int, str | None]]:
    """Number and error name of each attempt that a step or run shows."""
    return [(each["attempt"], each["error"] and each["error"]["name"]) for each in shown["attempts"]]


async def test_a_failed_step_is_tried_again_after_the_backoff(rest: Rest) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("backoff", {"failures": 1})
        retrying = await rest.becomes(run, lambda found: "retrying" in steps_of(found).values())
        assert step_of(retrying, "charge")["wake_at"] is not None
        assert await rest.completed(run) == 2
        first, second = bodies.times(run, "charge")
        assert attempts(step_of(await rest.run(run), "charge")) == [(1, "CardDeclined"), (2, None)]
    assert second - first >= 1.6


async def test_a_step_says_when_it_is_tried_again(rest: Rest) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("retry-after", {"failures": 3})
        assert await rest.completed(run) == 4
        times = bodies.times(run, "charge")
        shown = attempts(step_of(await rest.run(run), "charge"))
    assert shown == [(1, "RetryAfterError"), (2, "RetryAfterError"), (3, "RetryAfterError"), (4, None)]
    assert all(later - earlier >= 0.3 for earlier, later in pairwise(times))


async def test_the_last_attempt_of_a_step_fails_the_run(rest: Rest) -> None:
    async with serving(rest, failing):
        found = await rest.end(await rest.start("retry-after", {"failures": 4}))
    assert found["status"] == "failed"
    assert found["error"]["name"] == "RetryAfterError"
    assert found["error"]["message"] == "busy"
    assert step_of(found, "charge")["status"] == "failed"
    assert len(attempts(step_of(found, "charge"))) == 4


async def test_a_failed_step_is_caught_and_compensated(rest: Rest) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("saga", {"failures": 9})
        output = await rest.completed(run)
        found = await rest.run(run)
    assert output == {"failed": "charge", "name": "RetryAfterError", "message": "declined"}
    assert steps_of(found) == {"reserve": "completed", "charge": "failed", "release": "completed"}
    assert bodies.of(run) == {"reserve": 1, "charge": 2, "release": 1}


async def test_an_error_that_is_not_retriable_is_not_retried(rest: Rest) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("hopeless", {"failures": 9})
        found = await rest.end(run)
    assert found["status"] == "failed"
    assert found["error"]["message"] == "no such card"
    assert bodies.of(run) == {"charge": 1}


@pytest.mark.parametrize(("failures", "status"), [(2, "completed"), (9, "failed")])
async def test_an_error_outside_of_steps_is_an_attempt_of_the_function(rest: Rest, failures: int, status: str) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("outside", {"failures": failures})
        found = await rest.end(run)
    assert found["status"] == status
    assert bodies.of(run) == {"before": 1, "outside": min(failures, 3) + 1}
    failed = [(number, "RetryAfterError") for number in range(1, min(failures, 4) + 1)]
    assert [each for each in attempts(found) if each[1]] == failed


async def test_a_run_without_retries_fails_at_once(rest: Rest) -> None:
    async with serving(rest, failing) as bodies:
        run = await rest.start("crashing")
        found = await rest.end(run)
    assert (found["status"], found["error"]["name"]) == ("failed", "CardDeclined")
    assert found["error"]["message"] == "outside of any step"
    assert "crashing" in found["error"]["stack"]
    assert bodies.of(run) == {"before": 1}
