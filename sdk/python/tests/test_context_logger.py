"""`ctx.logger`: a line between steps appears once over all invocations of a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, Workflows
from sdk.python.tests.engine import RUN_ID, FakeEngine

NAME = "runr_workflows.workflow.w"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level("INFO", NAME)
    return caplog


def test_lines_between_steps_appear_once(wf: Workflows, engine: FakeEngine, lines: pytest.LogCaptureFixture) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        ctx.logger.info("begin")
        step.run("a", lambda: ctx.logger.info("in a"))
        ctx.logger.info("after %s", "a")
        step.sleep("nap", 1)
        ctx.logger.info("after nap")

    engine.run("w")

    assert [record.getMessage() for record in lines.records] == ["begin", "in a", "after a", "after nap"]
    assert lines.records[0].__dict__["run_id"] == RUN_ID
    assert lines.records[0].funcName == "workflow"
    assert lines.records[0].filename == "test_context_logger.py"


def test_lines_of_an_async_workflow_appear_once(
    wf: Workflows, engine: FakeEngine, lines: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        ctx.logger.info("begin")
        await asyncio.gather(step.run("a", lambda: ctx.logger.info("in a")), step.run("b", lambda: None))
        ctx.logger.info("end")

    engine.run("w")

    assert [record.getMessage() for record in lines.records] == ["begin", "in a", "end"]


def test_lines_while_unwinding_do_not_appear(
    wf: Workflows, engine: FakeEngine, lines: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        try:
            step.run("a", lambda: None)
        finally:
            ctx.logger.info("finally")

    engine.run("w")

    assert [record.getMessage() for record in lines.records] == ["finally"]


def test_lines_are_not_lost_after_steps_were_removed_from_the_code(
    wf: Workflows, engine: FakeEngine, lines: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        ctx.logger.info("old")
        step.run("a", lambda: None)
        ctx.logger.info("new")
        step.run("b", lambda: ctx.logger.info("in b"))

    done = {"status": "completed", "output": None}
    engine.execute("w", {"a": done, "removed": done})

    new, in_b, told = (record.getMessage() for record in lines.records)
    assert (new, in_b) == ("new", "in b")
    assert "did not ask for 'removed'" in told


def test_is_replaying_tells_old_from_new(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[bool]:
        before = ctx.is_replaying
        inside = step.run("a", lambda: ctx.is_replaying)
        return [before, inside, ctx.is_replaying]

    assert engine.run("w").output == [True, False, False]
