"""Several ops in one answer of a workflow: where it goes on, and where it ends."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from runr_workflows import Context, NonRetriableError, Step, StepError, Workflows
from sdk.python.tests.engine import FakeEngine, envelope, execute_request
from sdk.python.tests.ops import done, ids

KIB = 1024
LIMIT = 4 * KIB * KIB


def counting(wf: Workflows, count: int) -> list[int]:
    """A workflow `w` of so many steps; what was executed."""
    executed: list[int] = []

    def body(number: int) -> int:
        executed.append(number)
        return number

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        return sum(step.run("add", body, number) for number in range(count))

    return executed


def test_one_answer_holds_all_steps_and_the_end(wf: Workflows, engine: FakeEngine) -> None:
    executed = counting(wf, 3)

    ops = engine.answer("w", max_ops=50)

    assert ids(ops) == [*done("add", "add:1", "add:2"), ("run_completed", None)]
    assert ops[-1]["output"] == 3
    assert executed == [0, 1, 2]


def test_it_ends_at_max_ops_and_the_next_answer_goes_on(wf: Workflows, engine: FakeEngine) -> None:
    executed = counting(wf, 5)

    run = engine.run("w", max_ops=2)

    assert (run.output, run.answers, executed) == (10, 3, [0, 1, 2, 3, 4])
    assert run.kinds == done("add", "add:1", "add:2", "add:3", "add:4")


@pytest.mark.parametrize("max_ops", [None, 0, 1, -5, True, "50", 2.0])
def test_what_is_no_number_of_ops_is_one_op(wf: Workflows, engine: FakeEngine, max_ops: object) -> None:
    executed = counting(wf, 3)

    status, body = wf.handle_request(envelope(execute_request("w", max_ops=max_ops)), {})

    assert (status, body.count(b'"op":'), executed) == (200, 1, [0])


def test_no_step_begins_after_the_budget(wf: Workflows, engine: FakeEngine) -> None:
    executed = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("slow", lambda: time.sleep(0.05))
        step.run("late", executed.append, 1)

    assert ids(engine.answer("w", max_ops=50, budget_ms=20)) == done("slow")
    assert executed == []
    assert ids(engine.answer("w", max_ops=50, budget_ms=60_000)) == [*done("slow", "late"), ("run_completed", None)]


def test_the_budget_counts_from_the_request_and_the_first_step_always_runs(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        time.sleep(0.02)
        step.run("first", int)
        step.run("second", int)

    assert ids(engine.answer("w", max_ops=50, budget_ms=1)) == done("first")


def test_what_executes_nothing_is_added_after_the_budget(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        step.run("slow", lambda: time.sleep(0.05))
        return "end"

    assert ids(engine.answer("w", max_ops=50, budget_ms=20)) == [*done("slow"), ("run_completed", None)]


@pytest.mark.parametrize(
    ("call", "op"),
    [
        (lambda step: step.sleep("x", "1m"), "sleep"),
        (lambda step: step.sleep("x", 0), "sleep"),
        (lambda step: step.wait_for_event("x", "paid"), "wait_for_event"),
        (lambda step: step.invoke("x", "other"), "invoke"),
        (lambda step: step.send_event("x", {"name": "paid"}), "send_event"),
        (lambda step: step.run("x", lambda: 1 / 0), "step_failed"),
    ],
)
def test_every_other_op_is_the_last_one(
    wf: Workflows, engine: FakeEngine, call: Callable[[Step], Any], op: str
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("before", int)
        call(step)
        step.run("after", int)

    assert ids(engine.answer("w", max_ops=50)) == [*done("before"), (op, "x")]


def test_the_end_may_be_an_error(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("before", int)
        raise ValueError("between steps")

    ops = engine.answer("w", max_ops=50)

    assert ids(ops) == [*done("before"), ("run_failed", None)]
    assert ops[-1]["error"]["message"] == "between steps"


def test_a_nested_call_fails_the_run_after_the_steps_before_it(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("before", int)
        step.run("outer", lambda: step.run("inner", int))

    ops = engine.answer("w", max_ops=50)

    assert ids(ops) == [*done("before"), ("run_failed", None)]
    assert (ops[-1]["error"]["name"], ops[-1]["non_retriable"]) == ("NestedStepError", True)


def test_what_is_swallowed_after_the_end_changes_nothing(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        for number in range(3):
            with contextlib.suppress(BaseException):
                step.run(f"s{number}", int)
        return "swallowed"

    assert ids(engine.answer("w", max_ops=2)) == done("s0", "s1")


def test_a_result_is_what_a_later_invocation_reads(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[Any]:
        given: Any = step.run("pair", lambda: (1, {2: "two"}))
        return [type(given).__name__, given]

    assert engine.answer("w", max_ops=50)[-1]["output"] == ["list", [1, {"2": "two"}]]
    assert engine.run("w").output == ["list", [1, {"2": "two"}]]


def test_results_of_64_kib_and_more_end_the_answer(wf: Workflows, engine: FakeEngine) -> None:
    """The engine may refuse them: the code must not have gone on as if it had not."""

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("small", str)
        step.run("big", lambda: "x" * 64 * KIB)
        step.run("after", str)

    assert ids(engine.answer("w", max_ops=50)) == done("small", "big")


@pytest.mark.parametrize("letter", ["x", "é"])
def test_an_answer_ends_once_its_encoded_ops_exceed_4_mib(wf: Workflows, engine: FakeEngine, letter: str) -> None:
    each = 60 * KIB

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        for number in range(200):
            step.run(f"s{number}", lambda: letter * (each // len(letter.encode())))

    ops = engine.answer("w", max_ops=1000)

    assert LIMIT // (each + 200) < len(ops) <= LIMIT // each + 1


def test_a_last_op_that_does_not_fit_is_left_to_the_next_answer(wf: Workflows, engine: FakeEngine) -> None:
    executed = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        for number in range(60):
            step.run(f"s{number}", lambda: "x" * 60 * KIB)
        step.run("huge", lambda: executed.append(1) or "x" * 6 * KIB * KIB)
        return "x" * 6 * KIB * KIB

    first = engine.answer("w", max_ops=1000)
    assert [op["id"] for op in first] == [f"s{number}" for number in range(60)]
    steps = {op["id"]: {"status": "completed", "output": op["output"]} for op in first}
    assert ids(engine.answer("w", steps, max_ops=1000)) == done("huge")
    assert len(executed) == 2

    steps["huge"] = {"status": "completed", "output": ""}
    del steps["s59"]
    assert ids(engine.answer("w", steps, max_ops=1000)) == [*done("s59"), ("run_completed", None)]


def test_attempts_of_the_step_before_do_not_count_for_the_next(wf: Workflows, engine: FakeEngine) -> None:
    seen = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        for name in ("a", "b"):
            step.run(name, lambda: seen.append(ctx.attempt))

    engine.answer("w", max_ops=50, attempt=2)

    assert seen == [2, 0]


def test_a_failed_attempt_after_results_is_logged_as_the_first(
    wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", int)
        step.run("b", lambda: 1 / 0)

    with caplog.at_level(logging.WARNING, "runr_workflows"):
        engine.answer("w", max_ops=50, attempt=2)

    assert "step b: attempt 1 failed: ZeroDivisionError" in caplog.text


def test_ids_that_differ_at_every_call_are_noticed(wf: Workflows, engine: FakeEngine) -> None:
    calls = itertools.count()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        while True:
            step.run(f"s{next(calls)}", int)

    run = engine.run("w", most=150, max_ops=5)

    assert run.error is not None
    assert (run.status, run.error["name"], run.answers) == ("failed", "NonDeterminismError", 101)
    assert run.ops[-1]["non_retriable"] is True


def test_lines_are_logged_once(wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        for number in range(5):
            ctx.logger.info("before %d", number)
            step.run("s", int)
        ctx.logger.info("end")

    with caplog.at_level(logging.INFO, "runr_workflows.workflow.w"):
        engine.run("w", max_ops=2)

    assert [record.getMessage() for record in caplog.records] == [*(f"before {n}" for n in range(5)), "end"]


def test_a_step_that_failed_for_good_is_caught_and_the_code_goes_on(wf: Workflows, engine: FakeEngine) -> None:
    def refuse() -> None:
        raise NonRetriableError("no")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        step.run("a", int)
        try:
            step.run("b", refuse)
        except StepError as error:
            step.run("c", int)
            return error.message
        return "never"

    run = engine.run("w", max_ops=50)

    assert (run.output, run.answers) == ("no", 2)
    assert run.kinds == [*done("a"), ("step_failed", "b"), *done("c")]
