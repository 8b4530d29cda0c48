"""Faults and events of the kit that come to nothing are told: a test that sets them up would pass without testing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from runr_workflows import Context, NonRetriableError, Step, StepError, Workflows
from runr_workflows.testing import Fault, TestEngine, UnusedError, every_crash, fails, returns


@pytest.fixture
def wf() -> Iterator[Workflows]:
    registry = Workflows()

    @registry.workflow("order", timeout="60d")
    def order(ctx: Context, step: Step) -> Any:
        step.run("reserve", int)
        label = step.invoke("ship", "shipping")
        paid = step.wait_for_event("paid", "order.paid", timeout="3d")
        return [label, paid is not None]

    @registry.workflow("shipping")
    def shipping(ctx: Context, step: Step) -> Any:
        try:
            return step.run("label", str, "real")
        except StepError as error:
            return error.message

    yield registry
    registry.close()


@pytest.mark.parametrize("fault", [fails("resreve"), fails("reserve", workflow="shipping"), returns("add:1", 5)])
def test_a_fault_of_a_step_that_is_not_there(wf: Workflows, fault: Fault) -> None:
    told = r"has hit nothing; the steps were order: reserve, ship \(invoke\), paid \(wait_for_event\); shipping: label$"
    with pytest.raises(UnusedError, match=f"the fault of step '{fault.step}'.* {told}"):
        TestEngine(wf).run("order", faults=[fault])
    with pytest.raises(UnusedError, match=f"the fault of step '{fault.step}'.* {told}"):
        TestEngine(wf, faults=[fault]).run("order")
    with pytest.raises(UnusedError, match=f"the fault of step '{fault.step}'"):
        every_crash(wf, lambda engine: engine.run("order"), faults=[fault])
    engine = TestEngine(wf, faults=[fault], strict=False)
    assert engine.run("order", faults=[fault]).status == "completed"


async def test_it_is_told_however_the_run_ends(wf: Workflows) -> None:
    engine = TestEngine(wf)
    run = engine.start("order", faults=[fails("resreve")])
    with pytest.raises(UnusedError, match="'resreve'"):
        engine.advance("3d")
    assert run.ended
    engine.start("shipping")  # another run that ends has nothing to do with it
    with pytest.raises(UnusedError, match="'resreve'"):
        engine.cancel(engine.start("order", faults=[fails("resreve")]))
    with pytest.raises(UnusedError, match="'resreve'"):
        await TestEngine(wf).run_async("order", faults=[fails("resreve")])


def test_a_fault_of_every_run_may_hit_a_later_one(wf: Workflows) -> None:
    engine = TestEngine(wf, faults=[fails("label")])
    engine.start("order", delay="1h")
    assert engine.run("shipping").timeline.ops[0] == ("step_failed", "label", "retrying")


def test_a_run_that_was_there_already_takes_no_faults() -> None:
    wf = Workflows()

    @wf.workflow("once", idempotency="event.data.n")
    def once(ctx: Context, step: Step) -> None:
        step.run("work", int)

    engine = TestEngine(wf)
    engine.run("once", {"n": 1})
    engine.run("once", {"n": 2}, faults=[fails("work")])
    with pytest.raises(UnusedError, match="'work' has hit nothing; the steps were once: work"):
        engine.start("once", {"n": 1}, faults=[fails("work")])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (fails("ship"), r"a fault of step 'ship': it is an invoke step.*stubs="),
        (returns("paid", {}), r"a fault of step 'paid': it is a wait_for_event step.*engine\.send"),
    ],
)
def test_only_the_bodies_of_run_are_stood_in_for(wf: Workflows, fault: Fault, told: str) -> None:
    with pytest.raises(UnusedError, match=told):
        TestEngine(wf).run("order", faults=[fault])
    with pytest.raises(UnusedError, match=told):
        TestEngine(wf, faults=[fault], strict=False).run("order")


def test_faults_of_a_run_hold_for_those_that_it_invokes(wf: Workflows) -> None:
    engine = TestEngine(wf)
    run = engine.run("order", faults=[fails("label", NonRetriableError("no printer"), workflow="shipping")])
    assert run.output == ["no printer", False]
    again = TestEngine(wf, faults=[fails("label", times=2)])
    again.run("order", faults=[fails("label", times=1)])
    assert len(again.runs[1].timeline.of("label")) == 4


def test_an_event_for_a_step_that_no_run_waits_in(wf: Workflows) -> None:
    engine = TestEngine(wf)
    engine.send("order.paid", when_waiting="payd")
    with pytest.raises(UnusedError, match=r"no run has waited in step 'payd'.*the steps were order: reserve"):
        engine.run("order")
    engine.send("order.paid", when_waiting="payd")
    lenient = TestEngine(wf, strict=False)
    lenient.send("order.paid", when_waiting="payd")
    assert lenient.run("order").output == ["real", False]
    assert lenient.unsent == ["payd"]
