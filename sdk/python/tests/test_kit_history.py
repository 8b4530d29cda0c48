"""`replay`: code against the history of a run. Nothing is executed, and the first divergence is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, NonRetriableError, Step, StepError, Workflows
from runr_workflows.testing import Divergence, TestEngine, fails, replay


def charge(cents: int) -> int:
    return cents


def stored(fn: Callable[[Context, Step], Any], *, status: str = "completed", **options: Any) -> Mapping[str, Any]:
    """The history of a run of this code, as far as it comes at once."""
    wf = Workflows()
    wf.workflow("pay", retries=0)(fn)
    run = TestEngine(wf).start("pay", **options)
    assert run.status == status
    return run.history


def now(fn: Callable[..., Any]) -> Workflows:
    wf = Workflows()
    wf.workflow("pay")(fn)
    return wf


def pay(ctx: Context, step: Step) -> int:
    paid = step.run("charge", charge, 5)
    step.run("tell", charge, 6)
    return paid


def waiting(ctx: Context, step: Step) -> int:
    paid = step.run("charge", charge, 5)
    step.wait_for_event("shipped", "order.shipped")
    return paid


def test_code_that_goes_the_same_way_executes_nothing() -> None:
    def as_before(ctx: Context, step: Step) -> int:
        paid = step.run("charge", pytest.fail, "executed")
        step.run("tell", pytest.fail, "executed")
        return paid

    found = replay(now(as_before), stored(pay))
    assert (found.called, found.next) == (["charge", "tell"], None)
    active = replay(now(waiting), stored(waiting, status="waiting"))
    assert (active.called, active.next) == (["charge", "shipped"], "shipped")


def test_async_code_too() -> None:
    async def gathered(ctx: Context, step: AsyncStep) -> int:
        first = step.run("charge", charge, 0)
        await step.run("tell", charge, 0)
        return await first

    assert replay(now(gathered), stored(pay)).next is None


def renamed(ctx: Context, step: Step) -> int:
    paid = step.run("charge-card", charge, 5)
    step.run("tell", charge, 6)
    return paid


def removed(ctx: Context, step: Step) -> int:
    return step.run("charge", charge, 5)


def of_another_kind(ctx: Context, step: Step) -> int:
    paid = step.run("charge", charge, 5)
    step.sleep("tell", "1d")
    return paid


def with_more(ctx: Context, step: Step) -> int:
    pay(ctx, step)
    return step.run("thank", charge, 7)


def with_another_result(ctx: Context, step: Step) -> int:
    return pay(ctx, step) + 1


def broken(ctx: Context, step: Step) -> int:
    step.run("charge", charge, 5)
    raise KeyError("gone")


def raising(ctx: Context, step: Step) -> int:
    try:
        return pay(ctx, step)
    except StepError:
        raise KeyError("gone") from None


DIVERGENCES = {
    renamed: ("charge", "the history goes on with step 'charge', where the code calls 'charge-card'"),
    removed: ("tell", "step 'tell', where the code ends; the last step that it called is 'charge'"),
    of_another_kind: ("tell", "step 'tell' is sleep in the code, and run in the history"),
    with_more: ("thank", "the run has completed, and the code goes on with a new step 'thank'"),
    with_another_result: (None, "the run has completed with 5, the code with 6"),
    broken: ("tell", "step 'tell', where the code fails with KeyError: 'gone'"),
}


@pytest.mark.parametrize("fn", DIVERGENCES, ids=lambda fn: fn.__name__)
def test_the_first_divergence_is_named(fn: Callable[[Context, Step], Any]) -> None:
    step_id, message = DIVERGENCES[fn]
    with pytest.raises(Divergence) as told:
        replay(now(fn), stored(pay))
    assert told.value.step_id == step_id
    assert message in str(told.value)


def test_an_active_run_may_go_on_with_new_steps_behind_the_old_ones_only() -> None:
    def between(ctx: Context, step: Step) -> int:
        step.run("audit", charge, 1)
        return waiting(ctx, step)

    def after(ctx: Context, step: Step) -> int:
        waiting(ctx, step)
        return step.run("audit", charge, 1)

    history = stored(waiting, status="waiting")
    with pytest.raises(Divergence, match="'charge', where the code calls 'audit'"):
        replay(now(between), history)
    assert replay(now(after), history).next == "shipped"
    with pytest.raises(Divergence, match="the run is in step 'shipped', and the code ends without it"):
        replay(now(removed), history)


def sleeping(ctx: Context, step: Step) -> int:
    paid = step.run("charge", charge, 5)
    step.sleep("cool-off", "1d")
    return paid


def test_a_run_goes_on_in_the_step_that_it_is_in() -> None:
    def insured(ctx: Context, step: Step) -> int:
        paid = step.run("charge", charge, 5)
        step.run("insure", charge, 1)
        step.sleep("cool-off", "1d")
        return paid

    with pytest.raises(Divergence) as told:
        replay(now(insured), stored(sleeping, status="sleeping"))
    assert told.value.step_id == "cool-off"
    assert str(told.value) == (
        "the run is in step 'cool-off', and the code calls 'insure' without it;"
        " the last step that it called is 'charge'"
    )
    before = stored(sleeping, status="sleeping")
    first = {**before, "steps": before["steps"][1:]}
    with pytest.raises(Divergence, match=r"the code calls 'charge' without it$"):
        replay(now(sleeping), first)


def test_a_step_of_an_active_run_that_has_failed_for_good_fails_the_code_as_well() -> None:
    history = stored(pay, status="failed", faults=[fails("tell", NonRetriableError("no"))])
    active = {**history, "status": "queued", "error": None}
    assert replay(now(pay), active).next is None
    with pytest.raises(Divergence, match="the run is queued, and the code fails with KeyError"):
        replay(now(raising), active)


def test_a_failure_that_was_caught_is_caught_again() -> None:
    def compensated(ctx: Context, step: Step) -> str:
        try:
            step.run("charge", charge, 5)
        except StepError as error:
            return step.run("undo", str, error.name)
        return "paid"

    history = stored(compensated, faults=[fails("charge", NonRetriableError("no"))])
    assert replay(now(compensated), history).called == ["charge", "undo"]

    def not_caught(ctx: Context, step: Step) -> int:
        return step.run("charge", charge, 5)

    with pytest.raises(Divergence, match="'undo', where the code fails with NonRetriableError: no"):
        replay(now(not_caught), history)


def test_a_run_that_failed_fails_again() -> None:
    history = stored(broken, status="failed")
    assert replay(now(broken), history).next is None
    with pytest.raises(Divergence, match="the run has failed, and the code completes"):
        replay(now(removed), history)


def test_what_is_no_history_of_this_code_is_refused() -> None:
    with pytest.raises(Divergence, match="'pay' is not served here"):
        replay(Workflows(), stored(pay))
    with pytest.raises(ValueError, match="not that of a list"):
        replay(now(pay), {**stored(pay), "event": None})
