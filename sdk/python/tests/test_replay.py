"""Replay and memoization: each body once, results from the store, ids in call order (protocol section 7)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from runr_workflows import Context, Step, Workflows
from sdk.python.tests.engine import EVENT, KEY, RUN_ID, FakeEngine, envelope, execute_request


def test_two_steps_take_three_invocations_and_each_body_runs_once(wf: Workflows, engine: FakeEngine) -> None:
    bodies: list[str] = []

    def body(name: str) -> str:
        bodies.append(name)
        return name.lower()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        return step.run("A", body, "A") + step.run("B", body, "B")

    run = engine.run("w")

    assert run.kinds == [("step_completed", "A"), ("step_completed", "B")]
    assert [op["op"] for op in run.ops] == ["step_completed", "step_completed", "run_completed"]
    assert bodies == ["A", "B"]
    assert run.output == "ab"


def test_every_kind_of_step_is_reported_with_its_fields_and_recalled(wf: Workflows) -> None:
    shipped = {"id": "01J", "name": "order.shipped", "data": {"order_id": "o-1"}, "ts": 1}
    engine = FakeEngine(wf.handle_request, answers={"shipped": shipped, "child": {"total": 3}})

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[Any]:
        step.sleep("nap", "10m")
        step.sleep_until("dawn", "2026-01-01T06:00:00+03:00")
        event = step.wait_for_event(
            "shipped", "order.shipped", match="data.order_id", if_="async.data.ok", timeout="3d", lookback="run"
        )
        child = step.invoke("child", "sub", data={"n": 1}, timeout=60)
        sent = step.send_event("tell", {"name": "order.done", "data": {"n": 2}})
        return [event, child, sent]

    run = engine.run("w")

    assert [op for op in run.ops if "id" in op] == [
        {"op": "sleep", "id": "nap", "name": "nap", "duration": "10m"},
        {"op": "sleep", "id": "dawn", "name": "dawn", "until": "2026-01-01T03:00:00Z"},
        {
            "op": "wait_for_event",
            "id": "shipped",
            "name": "shipped",
            "event": "order.shipped",
            "match": "data.order_id",
            "if": "async.data.ok",
            "timeout": "3d",
            "lookback": "run",
        },
        {"op": "invoke", "id": "child", "name": "child", "workflow": "sub", "data": {"n": 1}, "timeout": 60},
        {"op": "send_event", "id": "tell", "name": "tell", "events": [{"name": "order.done", "data": {"n": 2}}]},
    ]
    assert run.output == [shipped, {"total": 3}, {"ids": ["01J00000000000000000000000"]}]


def test_a_repeated_id_gets_a_counter_that_all_kinds_share(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("pay", lambda: 1)
        step.sleep("pay", 0)
        step.wait_for_event("pay", "paid")

    run = engine.run("w")

    assert run.kinds == [("step_completed", "pay"), ("sleep", "pay:1"), ("wait_for_event", "pay:2")]
    assert [op.get("name") for op in run.ops] == ["pay", "pay", "pay", None]


def test_a_literal_id_never_reads_the_result_of_a_generated_one(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[int]:
        return [step.run("add", lambda: 1), step.run("add", lambda: 2), step.run("add:1", lambda: 3)]

    run = engine.run("w")

    assert [step_id for _, step_id in run.kinds] == ["add", "add:1", "add:1:1"]
    assert run.output == [1, 2, 3]


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"status": "completed", "output": None}, None),
        ({"status": "completed"}, None),
        ({"status": "completed", "output": {"name": "Error", "message": "x", "stack": "y"}}, {"name": "Error"}),
        ({"status": "completed", "output": 10**40}, 10**40),
    ],
)
def test_a_stored_result_is_returned_whatever_it_looks_like(
    wf: Workflows, engine: FakeEngine, stored: dict[str, Any], expected: object
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        result: Any = step.run("a", lambda: pytest.fail("a memoized step must not run"))
        return {"name": result["name"]} if isinstance(result, dict) else result

    op = engine.execute("w", {"a": stored})

    assert op == {"op": "run_completed", "output": expected}


def test_a_status_of_a_newer_engine_is_neither_returned_nor_run_again(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            return step.run("a", lambda: pytest.fail("the step must not run"))
        except BaseException:
            return "swallowed"

    op = engine.execute("w", {"a": {"status": "paused"}})

    assert op["op"] == "run_failed"
    assert "paused" in op["error"]["message"]


def test_memoized_steps_that_the_code_no_longer_reaches_are_ignored(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        return step.run("charge-card", lambda: 2)

    op = engine.execute("w", {"charge": {"status": "completed", "output": 1}})

    assert (op["op"], op["id"], op["output"]) == ("step_completed", "charge-card", 2)


def test_a_polling_loop_runs_its_steps_in_turn_and_null_can_be_final(wf: Workflows, engine: FakeEngine) -> None:
    checks: list[int] = []

    def check(previous: dict[str, Any] | None) -> dict[str, Any] | None:
        checks.append(len(checks))
        return (
            None
            if previous and previous["attempts"] == 2
            else {"attempts": (previous or {"attempts": 0})["attempts"] + 1}
        )

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        state: dict[str, Any] | None = None
        while (state := step.run("check", check, state)) is not None:
            step.sleep("pause", "1s")
        return "done"

    run = engine.run("w")

    assert [step_id for _, step_id in run.kinds] == ["check", "pause", "check:1", "pause:1", "check:2"]
    assert len(checks) == 3
    assert run.output == "done"


def test_arguments_reach_the_function_unchanged_and_show_in_the_timeline(wf: Workflows, engine: FakeEngine) -> None:
    received: list[Any] = []

    def body(*args: Any, **kwargs: Any) -> None:
        received.append((args, kwargs))

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("named", body, 1, None, id="x", fn="y")
        step.run("positional", body, {"a": [1]})
        step.run("object", body, object())
        step.run("large", body, "x" * 40_000)

    run = engine.run("w")

    assert received[0] == ((1, None), {"id": "x", "fn": "y"})
    assert [op.get("input") for op in run.ops] == [
        {"args": [1, None], "kwargs": {"id": "x", "fn": "y"}},
        [{"a": [1]}],
        None,
        None,
        None,
    ]


def test_input_can_be_switched_off() -> None:
    wf = Workflows(signing_key=KEY, capture_input=False, clock=lambda: 1_700_000_000)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", len, "secret")

    assert "input" not in FakeEngine(wf.handle_request).execute("w")


def test_options_set_the_attempts_of_one_step(wf: Workflows, engine: FakeEngine) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.options(retries=0).run("once", fail)

    run = engine.run("w")

    assert [(op["op"], op.get("max_attempts")) for op in run.ops] == [("step_failed", 1), ("run_failed", None)]


def test_the_context_holds_the_run(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> list[Any]:
        return [ctx.event, ctx.run_id, ctx.attempt, ctx.source, ctx.test, ctx.replay, ctx.workflow, ctx.parent_run_id]

    op = engine.execute("w")

    assert op["output"] == [EVENT, RUN_ID, 0, "event", True, False, "w", None]


def test_a_step_sees_its_own_attempt(wf: Workflows, engine: FakeEngine) -> None:
    attempts: list[int] = []

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        def body() -> None:
            attempts.append(ctx.attempt)
            if ctx.attempt < 2:
                raise RuntimeError("again")

        step.run("a", body)

    assert engine.run("w").status == "completed"
    assert attempts == [0, 1, 2]


def test_ids_made_of_punctuation_pass_byte_for_byte(wf: Workflows, engine: FakeEngine) -> None:
    crazy = "\"\\\n\t ödeme 😀 __proto__ :1 <>&'"

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        return step.run(crazy, lambda: 1)

    run = engine.run("w")

    assert run.kinds == [("step_completed", crazy)]
    assert run.output == 1


def test_mutating_the_event_does_not_outlive_the_invocation(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        ctx.event["data"]["n"] = ctx.event["data"].get("n", 0) + 1
        step.run("a", lambda: None)
        return int(ctx.event["data"]["n"])

    assert engine.run("w").output == 1


def test_an_answer_says_when_its_sleep_was_asked_for(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("a", lambda: None)
        step.sleep("nap", "10m")

    def answer(**fields: Any) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(wf.handle_request(envelope(execute_request("w", **fields)), {})[1])
        return body

    assert "asked_at" not in answer()
    for memo, max_ops in (({"a": {"status": "completed", "output": None}}, 1), ({}, 5)):
        before = time.time()
        answered = answer(steps=memo, max_ops=max_ops)
        assert answered["ops"][-1] == {"op": "sleep", "id": "nap", "name": "nap", "duration": "10m"}
        assert before - 0.001 <= answered["asked_at"] / 1_000 <= time.time() + 0.001
