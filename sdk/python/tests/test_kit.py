"""The test kit: time, events, attempts, crashes. That it follows the engine is `tests/e2e/test_kit_parity.py`'s."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runr_workflows import (
    AsyncStep,
    Context,
    InvokeError,
    NonRetriableError,
    RetryAfterError,
    Step,
    StepArgumentError,
    StepError,
    Workflows,
)
from runr_workflows.expression import ExpressionError, condition, parse
from runr_workflows.json_values import is_true
from runr_workflows.testing import TestEngine, every_crash, fails, returns
from runr_workflows.testing.crashes import CrashError

VECTORS = Path(__file__).parents[3] / "tests/vectors/data/expressions.json"
BEGINS = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def wf() -> Iterator[Workflows]:
    registry = Workflows()
    yield registry
    registry.close()


def charge(order: dict[str, Any]) -> dict[str, Any]:
    return {"paid": order["order_id"]}


def order(ctx: Context, step: Step) -> Any:
    paid = step.run("charge", charge, ctx.event["data"])
    step.sleep("cool-off", "30d")
    packed = step.wait_for_event("packed", "order.packed", match="data.order_id", timeout="1d")
    shipped = step.wait_for_event("shipped", "order.shipped", match="data.order_id", timeout="3d")
    return [paid, packed and packed["data"], shipped and shipped["data"]]


async def order_async(ctx: Context, step: AsyncStep) -> Any:
    paid = await step.run("charge", charge, ctx.event["data"])
    await step.sleep("cool-off", "30d")
    packed = await step.wait_for_event("packed", "order.packed", match="data.order_id", timeout="1d")
    shipped = await step.wait_for_event("shipped", "order.shipped", match="data.order_id", timeout="3d")
    return [paid, packed and packed["data"], shipped and shipped["data"]]


def deliver(engine: TestEngine) -> None:
    """Other orders first."""
    engine.send("order.packed", {"order_id": "o-2"}, when_waiting="packed")
    engine.send("order.packed", {"order_id": "o-1"}, after="30d6h")
    engine.send("order.shipped", {"order_id": "o-1", "by": "van"}, when_waiting="shipped")


@pytest.mark.parametrize("fn", [order, order_async])
def test_a_month_two_events_and_five_attempts_more(wf: Workflows, fn: Any) -> None:
    wf.workflow("order", retries=5, timeout="60d")(fn)
    engine = TestEngine(wf)
    deliver(engine)
    run = engine.run("order", {"order_id": "o-1"}, faults=[fails("charge", times=5)])
    assert (run.status, run.output) == (
        "completed",
        [{"paid": "o-1"}, {"order_id": "o-1"}, {"order_id": "o-1", "by": "van"}],
    )
    assert run.timeline.ops == [
        *[("step_failed", "charge", "retrying")] * 5,
        ("step_completed", "charge", "completed"),
        ("sleep", "cool-off", "sleeping"),
        ("sleep", "cool-off", "completed"),
        ("wait_for_event", "packed", "waiting"),
        ("wait_for_event", "packed", "completed"),
        ("wait_for_event", "shipped", "waiting"),
        ("wait_for_event", "shipped", "completed"),
        ("run_completed", None, "completed"),
    ]
    backoffs = [entry.at - BEGINS for entry in run.timeline.of("charge")]
    assert [backoff.total_seconds() for backoff in backoffs] == [0, 2, 6, 14, 30, 62]
    assert engine.now == BEGINS + timedelta(days=30, hours=6)
    assert engine.unsent == []


def test_time_stands_still_until_it_is_let_pass(wf: Workflows) -> None:
    wf.workflow("order", timeout="60d")(order)
    engine = TestEngine(wf)
    run = engine.start("order", {"order_id": "o-1"})
    assert (run.status, engine.now) == ("sleeping", BEGINS)
    engine.advance("29d")
    assert run.status == "sleeping"
    engine.advance(timedelta(days=1))
    assert run.status == "waiting"
    sent = engine.send("order.packed", {"order_id": "o-1"})
    assert sent.resumed == 1
    assert run.timeline[-1].id == "shipped"
    engine.advance("3d")
    assert run.output == [{"paid": "o-1"}, {"order_id": "o-1"}, None]


async def test_async_workflows_run_on_the_loop_of_the_test(wf: Workflows) -> None:
    loop = asyncio.get_running_loop()

    async def look() -> bool:
        return asyncio.get_running_loop() is loop

    @wf.workflow("mine")
    async def mine(ctx: Context, step: AsyncStep) -> bool:
        await step.sleep("a-day", "1d")
        return await step.run("look", look)

    engine = TestEngine(wf)
    run = await engine.start_async("mine")
    await engine.advance_async("1d")
    assert run.output is True
    assert (await engine.run_async("mine")).output is True


async def test_a_workflow_may_be_given_as_its_function(wf: Workflows) -> None:
    @wf.workflow("double")
    def double(ctx: Context, step: Step) -> int:
        return int(ctx.event["data"]["n"]) * 2

    run = TestEngine(wf).run(double, {"n": 2})
    assert (run.output, repr(run)) == (4, "<TestRun of double: completed>")
    assert (await TestEngine(wf).start_async(double, {"n": 3})).output == 6
    with pytest.raises(StepArgumentError, match=r"a function decorated with @wf\.workflow"):
        TestEngine(wf).run(charge)  # type: ignore[call-overload]


def test_what_a_run_shows_is_for_tests(wf: Workflows) -> None:
    wf.workflow("order")(order)
    shown = [name for name in dir(TestEngine(wf).start("order", {"order_id": "o-1"})) if not name.startswith("_")]
    assert shown == sorted(
        [
            "attempt",
            "attempts",
            "children",
            "ended",
            "error",
            "event",
            "executed",
            "history",
            "id",
            "idempotency_key",
            "lost",
            "output",
            "parent",
            "replay_of",
            "source",
            "status",
            "steps",
            "timeline",
            "workflow",
        ]
    )


def test_errors_decide_about_attempts(wf: Workflows) -> None:
    @wf.workflow("pay", retries=2)
    def pay(ctx: Context, step: Step) -> str:
        try:
            return step.run("charge", charge, {"order_id": "o"})["paid"]  # type: ignore[no-any-return]
        except StepError as error:
            return f"{error.name}: {error.message}"

    final = TestEngine(wf).run("pay", faults=[fails("charge", NonRetriableError("expired"))])
    assert (final.output, len(final.timeline.of("charge"))) == ("NonRetriableError: expired", 1)
    tired = TestEngine(wf).run("pay", faults=[fails("charge", ConnectionError, times=None)])
    assert (tired.output, len(tired.timeline.of("charge"))) == ("ConnectionError: ", 3)
    engine = TestEngine(wf)
    later = engine.run(
        "pay", faults=[fails("charge", RetryAfterError("busy", "2h")), returns("charge", {"paid": "stub"})]
    )
    assert (later.output, engine.now - BEGINS) == ("stub", timedelta(hours=2))
    assert later.executed == {"charge": 2}


def test_steps_may_be_stood_in_for(wf: Workflows) -> None:
    def forbidden(amount: int) -> int:
        raise AssertionError("the body is not to be executed")

    @wf.workflow("sum")
    def total(ctx: Context, step: Step) -> int:
        return sum(step.run("add", forbidden, number) for number in (1, 2))

    assert TestEngine(wf, faults=[returns("add", lambda n: n * 10), returns("add:1", 5)]).run("sum").output == 15


def test_invoked_workflows_are_real_or_stubs(wf: Workflows) -> None:
    @wf.workflow("parent")
    def parent(ctx: Context, step: Step) -> Any:
        try:
            return step.invoke("child", "child", data={"n": 2})
        except InvokeError as error:
            return error.message

    @wf.workflow("child")
    def child(ctx: Context, step: Step) -> int:
        step.sleep("a-while", "5d")
        return int(ctx.event["data"]["n"]) * 2

    def broken(data: dict[str, Any]) -> None:
        raise ValueError(f"no {data['n']}")

    real = TestEngine(wf)
    assert real.run("parent").output == 4
    assert [run.workflow for run in real.runs] == ["parent", "child"]
    assert TestEngine(wf, stubs={"child": 7}).run("parent").output == 7
    assert TestEngine(wf, stubs={"child": broken}).run("parent").output == "the invoked run failed: no 2"


def test_events_start_cancel_and_come_once(wf: Workflows) -> None:
    @wf.workflow(
        "watch",
        triggers=[{"event": "seen", "if": "event.data.n > 1"}],
        cancel_on=[{"event": "stop", "if": "event.data.n == async.data.n", "timeout": "1d"}],
        idempotency="event.data.n",
    )
    def watch(ctx: Context, step: Step) -> None:
        step.sleep("long", "10d")

    engine = TestEngine(wf)

    def send(name: str, n: int, id: str | None = None) -> tuple[int, int, bool]:
        sent = engine.send(name, {"n": n}, id=id)
        return len(sent.runs), sent.cancelled, sent.duplicate

    assert send("seen", 1) == (0, 0, False)
    assert send("seen", 2, "a") == (1, 0, False)
    assert send("seen", 2, "a") == (1, 0, True)
    assert send("seen", 2, "b") == (1, 0, False)  # the run that the idempotency key has
    assert send("seen", 3) == (1, 0, False)
    assert len(engine.runs) == 2
    assert send("stop", 2) == (0, 1, False)
    engine.advance("1d")
    assert send("stop", 3) == (0, 0, False)
    assert [run.status for run in engine.runs] == ["cancelled", "sleeping"]


def test_a_run_that_is_never_answered_times_out(wf: Workflows) -> None:
    @wf.workflow("patient", timeout="2d")
    def patient(ctx: Context, step: Step) -> None:
        step.wait_for_event("answer", "answered", timeout="30d")

    engine = TestEngine(wf)
    run = engine.run("patient", delay="1h")
    assert (run.status, run.steps["answer"].status) == ("timed_out", "cancelled")
    assert engine.now == BEGINS + timedelta(days=2, hours=1)
    with pytest.raises(ValueError, match="ended already: timed_out"):
        engine.cancel(run)


def test_a_run_knows_what_it_was_started_by(wf: Workflows) -> None:
    @wf.workflow("report", triggers=[{"cron": "0 9 * * *"}])
    def report(ctx: Context, step: Step) -> Any:
        return [ctx.source, ctx.event["name"], ctx.event["data"]]

    engine = TestEngine(wf)
    at = {"scheduled_at": "2026-01-01T09:00:00Z"}
    assert engine.run("report", event=("runr/cron", at)).output == ["cron", "runr/cron", at]
    assert engine.run("report", event=("queue/jobs", {"n": 1})).output == ["queue", "queue/jobs", {"n": 1}]
    assert engine.run("report", {"n": 1}).output == ["api", "runr/api.start", {"n": 1}]


def test_misuse_is_told(wf: Workflows) -> None:
    wf.workflow("order")(order)
    engine = TestEngine(wf)
    with pytest.raises(LookupError, match="'orders' is not registered; there is order"):
        engine.run("orders")
    with pytest.raises(ValueError, match="reserved for the platform"):
        engine.send("runr/run.completed")
    with pytest.raises(ValueError, match="give one of them"):
        engine.send("a", after="1d", when_waiting="b")
    engine.send("a", when_waiting="nowhere")
    assert engine.unsent == ["nowhere"]


def test_the_process_may_die_after_any_op(wf: Workflows) -> None:
    wf.workflow("order", retries=5, timeout="60d")(order)

    def scenario(engine: TestEngine) -> None:
        deliver(engine)
        engine.run("order", {"order_id": "o-1"}, faults=[fails("charge", times=2)])

    assert every_crash(wf, scenario) == 2 * 7
    engine = TestEngine(wf, crash_after=3)
    scenario(engine)
    (run,) = engine.runs
    assert run.timeline.ops[:4] == [
        ("step_failed", "charge", "retrying"),
        ("step_failed", "charge", "retrying"),
        ("crash", None, "queued"),
        ("step_completed", "charge", "completed"),
    ]
    assert (run.executed["charge"], run.lost["charge"], run.timeline.of("charge")[-1].attempt) == (4, 1, 3)


def test_a_workflow_without_attempts_does_not_survive_a_lost_answer(wf: Workflows) -> None:
    wf.workflow("order", retries=0)(order)
    with pytest.raises(
        CrashError,
        match=r"op 1, its answer lost, run 1 \(order\) is another: status is 'failed', without it 'timed_out'\n",
    ):
        every_crash(wf, lambda engine: engine.run("order", {"order_id": "o-1"}))


def test_the_first_difference_of_a_crash_is_told_first() -> None:
    def told(same: Callable[[Any], Any]) -> str:
        with pytest.raises(CrashError) as caught:
            every_crash(remembering, lambda engine: engine.run("careless"), same=same)
        return str(caught.value).splitlines()[0].partition(" is another: ")[2]

    assert told(lambda run: {"steps": [("a", 1), ("b", run.output)]}) == "steps[1][1] is 0, without it 1"
    assert told(lambda run: [run.output]) == "[0] is 0, without it 1"
    assert told(lambda run: run.output) == "is 0, without it 1"
    assert told(lambda run: [1] * run.output) == "is [], without it [1]"


def remembering() -> Workflows:
    """Code that keeps something in its process from one invocation to the next."""
    wf, kept = Workflows(), list[int]()

    @wf.workflow("careless")
    def careless(ctx: Context, step: Step) -> int:
        step.run("remember", kept.append, 1)
        step.run("other", int)
        return len(kept)

    return wf


def test_what_only_the_process_knew_is_missed_after_a_crash() -> None:
    assert TestEngine(remembering).run("careless").output == 1
    with pytest.raises(
        CrashError, match=r"its answer stored, run 1 \(careless\) is another: output is 0, without it 1\n"
    ):
        every_crash(remembering, lambda engine: engine.run("careless"))


def test_several_steps_an_answer_are_lost_together_and_then_go_one_by_one(wf: Workflows) -> None:
    @wf.workflow("many", checkpoint={"max_steps": 4}, retries=1)
    def many(ctx: Context, step: Step) -> int:
        return sum(step.run("add", int, number) for number in range(6))

    run = TestEngine(wf, crash_after=2).run("many")
    assert run.output == 15
    assert run.lost == {"add": 1, "add:1": 1, "add:2": 1, "add:3": 1}
    assert every_crash(wf, lambda engine: engine.run("many")) == 2 * 7


def document() -> Any:
    return json.loads(VECTORS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", document()["cases"], ids=lambda row: row["id"])
def test_expressions_are_those_of_the_engine(row: Any) -> None:
    environment = row["env"]
    if isinstance(environment, str):
        base, _, without = environment.partition(" without ")
        environment = {root: v for root, v in document()["environments"][base].items() if root != without}
    pair = (environment.get("event"), environment.get("async"))
    try:
        value = parse(row["expr"])(pair)
    except ExpressionError:
        value = "error"
    if row.get("mode") == "value" or value == "error":
        assert (value, type(value)) == (row["expected"], type(row["expected"]))
    else:
        assert is_true(value) is row["expected"]


@pytest.mark.parametrize("text", ["(" * 10_000 + "true" + ")" * 10_000, "!" * 10_001 + "true", "!" * 40 + "true", ""])
def test_expressions_that_are_too_much_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_match_and_an_if_must_both_hold() -> None:
    holds: Callable[[Any], Any] = condition("data.id", "async.data.n > event.data.n")
    mine = {"data": {"id": 1, "n": 5}}
    assert holds((mine, {"data": {"id": 1.0, "n": 6}}))
    assert not holds((mine, {"data": {"id": 1, "n": 5}}))
    assert not holds((mine, {"data": {"id": True, "n": 6}}))
