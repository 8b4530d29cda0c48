"""What the function's own log says: failed attempts and refused requests, never payloads or keys."""

from __future__ import annotations

import asyncio

import pytest

from runr_workflows import AsyncStep, Context, NonRetriableError, RetryAfterError, Step, StepError, Workflows
from sdk.python.tests.engine import KEY, RUN_ID, FakeEngine, envelope, execute_request


def fail(secret: str) -> None:
    raise NonRetriableError("no such card")


def flaky(attempt: int) -> None:
    if attempt == 0:
        raise ValueError("try again")


def test_each_failed_attempt_is_one_warning(
    wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("order")
    def order(ctx: Context, step: Step) -> None:
        step.run("flaky", flaky, ctx.attempt)
        try:
            step.run("charge", fail, "hunter2")
        except StepError:
            step.sleep("pause", "1s")
        raise KeyError("after")

    @wf.workflow("async")
    async def awaited(ctx: Context, step: AsyncStep) -> None:
        await step.run("charge", fail, "hunter2")

    engine.run("order")
    FakeEngine(wf.handle_request).run("async")

    at = f"workflow order, run {RUN_ID}"
    assert [record.getMessage().partition("\n")[0] for record in caplog.records] == [
        f"{at}, step flaky: attempt 1 failed: ValueError: try again",
        f"{at}, step charge: attempt 1 failed: NonRetriableError: no such card",
        *[f"{at}: attempt {attempt} failed: KeyError: 'after'" for attempt in (1, 2, 3, 4)],
        f"workflow async, run {RUN_ID}, step charge: attempt 1 failed: NonRetriableError: no such card",
        f"workflow async, run {RUN_ID}: attempt 1 failed: NonRetriableError: no such card",
    ]
    assert {(record.name, record.levelname) for record in caplog.records} == {("runr_workflows", "WARNING")}


def test_below_is_the_traceback_of_what_was_not_raised_on_purpose(
    wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("order", retries=0)
    def order(ctx: Context, step: Step) -> None:
        try:
            step.options(retries=0).run("flaky", flaky, 0)
        except StepError:
            step.options(retries=0).run("later", wait_a_minute)
        raise NonRetriableError("no such order") from KeyError("order")

    @wf.workflow("outside")
    def outside(ctx: Context, step: Step) -> None:
        {}["missing"]

    engine.run("order")
    FakeEngine(wf.handle_request).run("outside")

    told = {text.splitlines()[0].rpartition(", ")[2]: text.splitlines()[1:] for text in caplog.messages}
    below = told.pop("step flaky: attempt 1 failed: ValueError: try again")
    assert (below[0], below[-1]) == ("Traceback (most recent call last):", "ValueError: try again")
    assert below[1].endswith("in flaky"), "user code comes first, and the SDK has no part in it"
    below = told.pop(f"run {RUN_ID}: attempt 1 failed: KeyError: 'missing'")
    assert below[1].endswith("in outside")
    assert not any(lines for text, lines in told.items() if "attempt 1" in text and "KeyError" not in text)


def wait_a_minute() -> None:
    raise RetryAfterError("not yet", "1m")


def test_a_refused_request_is_told_without_keys(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    wf.handle_request(b"{}", {})
    wf.handle_request(envelope(execute_request("w"), key="another key"), {})
    asyncio.run(wf.handle_request_async(envelope(execute_request("nobody")), {}))

    assert [record.getMessage() for record in caplog.records] == [
        "a request was refused with 400: the body is not a v1 envelope",
        "a request was refused with 401: the signature does not match",
        "a request was refused with 400: the workflow 'nobody' is not served here",
    ]
    assert KEY not in caplog.text
    assert "another key" not in caplog.text
