"""From a decision to what is committed, and from what was committed back into the lease."""

from __future__ import annotations

import json
import random

import pytest

from services.core.domain.cause import Answered, Cause, FunctionFailed
from services.core.domain.definition import CancelOn
from services.core.domain.gate_rule import RunGates
from services.core.domain.matching import name_hash
from services.core.domain.op import (
    EventToSend,
    FunctionFault,
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.run import Limits
from services.core.domain.transition import Decision, decide
from services.core.engine.send_events import SendMark, sent_output
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.store.commit_item import CommitItem, Committed
from services.executor.lease import Lease
from services.executor.record import commit_item
from tests.support.builders import lease, workflow

NOW = 1_760_000_001_000
BOOM = OpError("Boom", "no")
IDS = UlidFactory(SystemClock(), random.Random(1))


def done(step_id: str, output: str = "1", **fields: object) -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, output=output, **fields)  # type: ignore[arg-type]


def failed(step_id: str, **fields: object) -> StepFailed:
    return StepFailed(id=step_id, name=step_id, error=BOOM, **fields)  # type: ignore[arg-type]


def decided(held: Lease, cause: Cause, *, wanted: bool = False) -> tuple[Decision, CommitItem]:
    decision = decide(held.view(Limits()), cause, NOW)
    return decision, commit_item(held, decision, IDS)


def item(held: Lease, *ops: Op) -> CommitItem:
    return decided(held, Answered(ops))[1]


def test_the_item_carries_the_fences_of_the_lease() -> None:
    made = item(lease(), done("a"))
    assert (made.epoch, made.rev, made.mail, made.keep, made.st) == (3, 5, 2, True, "r")


@pytest.mark.parametrize(
    ("op", "st"),
    [
        (Sleep(id="a", name="a", for_ms=1), "s"),
        (WaitForEvent(id="a", name="a", event="paid"), "w"),
        (failed("a"), "d"),
        (RunFailed(error=BOOM), "d"),
    ],
    ids=["sleep", "wait", "step failed", "run failed"],
)
def test_a_resting_run_is_let_go_in_the_status_it_rests_in(op: Op, st: str) -> None:
    made = item(lease(), op)
    assert (made.keep, made.st) == (False, st)
    assert len(made.wait_rows) == 1


def test_a_run_that_yields_its_slot_goes_back_into_the_line() -> None:
    _, made = decided(lease(gates=RunGates(1, 9, None)), Answered((done("a"),), wanted=True))
    assert (made.keep, made.st, made.gates) == (False, "q", (9,))


def test_steps_and_size_are_what_this_commit_adds() -> None:
    made = item(lease(steps=4, size=100), done("a", '"é"'), Sleep(id="z", name="z", for_ms=1))
    assert (made.steps, made.size) == (2, 4)
    assert [row.seq for row in made.step_rows] == [4]
    assert [row.seq for row in made.wait_rows] == [5]


def test_a_failure_counts_with_all_of_its_stored_text() -> None:
    made = item(lease(), failed("a", non_retriable=True))
    (row,) = made.step_rows
    assert row.error is not None
    assert made.size == len(row.error)
    assert json.loads(row.error) == {"name": "Boom", "message": "no"}
    assert (row.status, row.output) == ("f", None)


@pytest.mark.parametrize(
    ("ops", "uses"),
    [
        ((done("a"),), 1),
        ((done("a"), done("b")), 2),
        ((failed("a"),), 1),
        ((failed("a", non_retriable=True),), 1),
        ((done("a"), failed("b", non_retriable=True)), 2),
        ((Sleep(id="a", name="a", for_ms=0),), 1),
        ((Sleep(id="a", name="a", for_ms=5),), 1),
        ((WaitForEvent(id="a", name="a", event="e"),), 1),
        ((SendEvent(id="a", name="a", events=(EventToSend(name="e"),)),), 1),
        ((RunCompleted(),), 0),
        ((RunFailed(error=BOOM),), 0),
    ],
)
def test_usage_counts_each_execution_of_a_step_once(ops: tuple[Op, ...], uses: int) -> None:
    assert item(lease(), *ops).uses == uses


def test_attempts_are_numbered_within_the_run_and_within_the_step() -> None:
    held = lease(attempts=6, failing={"a": 2})
    (row,) = item(held, failed("a")).attempt_rows
    assert (row.n, row.sid, row.k) == (6, "a", 3)
    _, made = decided(lease(attempts=6, function_failures=1), FunctionFailed(FunctionFault("FunctionTimeout", "no")))
    (row,) = made.attempt_rows
    assert (row.n, row.sid, row.k) == (6, None, 2)
    assert made.fn_att == 2


def test_a_step_says_how_many_attempts_it_took() -> None:
    (row,) = item(lease(failing={"a": 2}), done("a")).step_rows
    assert row.att == 3
    (row,) = item(lease(failing={"a": 2}), failed("a", non_retriable=True)).step_rows
    assert row.att == 3


@pytest.mark.parametrize("op", [done("a", duration_ms=10**15), failed("a", duration_ms=10**15)], ids=["done", "failed"])
def test_a_duration_beyond_its_column_is_cut_and_does_not_cost_an_attempt(op: Op) -> None:
    made = item(lease(), op)
    assert [*(row.ms for row in made.step_rows), *(row.ms for row in made.attempt_rows)] == [2**31 - 1]


def test_a_wait_is_kept_for_the_trigger_event_of_its_run() -> None:
    condition = "event.data.order_id == async.data.order_id"
    (row,) = item(lease(), WaitForEvent(id="w", name="w", event="paid", condition=condition)).wait_rows
    assert (row.kind, row.sid, row.event, row.name_h, row.path) == (
        "e",
        "w",
        "paid",
        name_hash("paid"),
        "data.order_id",
    )
    assert row.cond is not None
    assert "o-1" in row.cond
    assert (row.arming, row.lookback_ms) == (False, None)


@pytest.mark.parametrize("lookback_ms", [400, 0, -1, 10**15])
def test_c8_c21_how_far_a_wait_looks_back_is_left_to_the_clock_that_stamped_the_events(lookback_ms: int) -> None:
    (row,) = item(lease(), WaitForEvent(id="w", name="w", event="paid", lookback_ms=lookback_ms)).wait_rows
    assert (row.arming, row.lookback_ms) == (True, lookback_ms)


def test_waits_that_are_no_step_have_no_step_id() -> None:
    (row,) = item(lease(), RunFailed(error=BOOM)).wait_rows
    assert (row.kind, row.sid, row.event, row.name_h) == ("d", None, None, None)
    (row,) = item(lease(), failed("a")).wait_rows
    assert (row.kind, row.sid) == ("b", "a")


def test_c13_sent_events_are_a_mark_with_fixed_ids_and_the_step_names_them() -> None:
    held = lease(test=True)
    made = item(held, SendEvent(id="s", name="s", events=(EventToSend(name="a"), EventToSend(name="b"))))
    (step,), (row,) = made.step_rows, made.mark_rows
    mark = SendMark.from_json(row.body)
    assert step.output is not None
    assert [ulid_uuid(text) for text in json.loads(step.output)["ids"]] == list(mark.ids)
    assert made.size == len(step.output)


def test_c13_ids_that_the_function_gave_are_named_when_the_events_are_stored() -> None:
    events = (EventToSend(name="a.b", data='{"k":1}'), EventToSend(name="c", id="mine", ts=5))
    held = lease(test=True)
    made = item(held, SendEvent(id="s", name="s", events=events))
    (step,), (row,) = made.step_rows, made.mark_rows
    mark = SendMark.from_json(row.body)
    assert step.unnamed
    assert (mark.run, mark.step) == (held.run, "s")
    assert made.size == len(sent_output(mark.ids))
    first, second = mark.events
    assert (first.src, first.event_id) == ("w", f"{ulid_text(held.run)}/s/0")
    assert (second.src, second.event_id, second.ts) == ("u", "mine", 5)
    assert all(
        (each.source, each.project, each.run, each.test) == ("workflow", 1, held.run, True) for each in mark.events
    )
    assert (first.name, first.data) == ("a.b", '{"k":1}')
    assert SendMark.from_json(mark.to_json()) == mark


def test_an_executed_twice_send_event_has_the_same_keys() -> None:
    op = SendEvent(id="s", name="s", events=(EventToSend(name="a"),))
    keys = [SendMark.from_json(item(lease(), op).mark_rows[0].body).events[0].event_id for _ in range(2)]
    assert keys[0] == keys[1]


def test_the_longest_step_id_makes_a_key_that_fits() -> None:
    op = SendEvent(id="x" * 255, name="x", events=tuple(EventToSend(name="a") for _ in range(100)))
    mark = SendMark.from_json(item(lease(), op).mark_rows[0].body)
    assert max(len(event.event_id or "") for event in mark.events) <= 600


def test_an_invoke_starts_its_child_with_the_childs_own_definition() -> None:
    child = workflow("child", 2, retries=7, timeout_ms=99_000, cancel_on=(CancelOn(event="stop"),))
    held = lease(workflow(), child, test=True)
    made = item(held, Invoke(id="c", name="c", workflow="child", data='{"n":1}', timeout_ms=5))
    (start,) = made.start_rows
    wait, stop = made.wait_rows
    assert (wait.kind, wait.child, wait.run, wait.delay_ms) == ("c", start.id, held.run, 5)
    assert (stop.kind, stop.run, stop.event) == ("x", start.id, "stop")
    assert (start.wf, start.parent, start.source, start.event_data, start.test) == (
        2,
        held.run,
        "invoke",
        '{"n":1}',
        True,
    )
    assert (start.max_att, start.timeout_ms) == (8, 99_000)


# ---- back into the lease


def advanced(held: Lease, cause: Cause, mail: int | None = None) -> Lease:
    decision, made = decided(held, cause)
    held.advance(decision, made, Committed(held.mail if mail is None else mail, "r", None))
    return held


def test_a_lease_takes_over_what_was_committed() -> None:
    held = advanced(lease(steps=1, size=10, function_failures=2, repeats=1), Answered((done("a", '"xy"'),)), mail=9)
    assert (held.rev, held.mail, held.steps, held.size) == (6, 9, 2, 14)
    assert (held.function_failures, held.repeats) == (0, 0)
    assert held.memo.ids == {"a"}
    assert held.memo.order == '"a"'
    assert held.memo.steps == '"a":{"status":"completed","output":"xy"}'


def test_a_failed_step_is_what_attempt_tells_until_it_succeeds() -> None:
    held = advanced(advanced(lease(), Answered((failed("a"),))), Answered((failed("a"),)))
    assert (held.failing, held.attempt, held.attempts) == ({"a": 2}, 2, 2)
    advanced(held, Answered((done("a"),)))
    assert (held.failing, held.attempt) == ({}, 0)


def test_a_step_that_failed_for_good_is_memoized_with_its_error() -> None:
    held = advanced(lease(max_attempts=1), Answered((failed("a"),)))
    assert held.failing == {}
    assert held.memo.steps == '"a":{"status":"failed","error":{"name":"Boom","message":"no"}}'


def test_attempt_counts_the_function_where_no_step_is_being_retried() -> None:
    held = advanced(lease(), FunctionFailed(FunctionFault("FunctionTimeout", "no answer")))
    assert (held.attempt, held.function_failures) == (1, 1)


def test_a_sent_event_is_memoized_with_its_ids() -> None:
    held = advanced(lease(), Answered((SendEvent(id="s", name="s", events=(EventToSend(name="a"),)),)))
    (text,) = json.loads("{" + held.memo.steps + "}")["s"]["output"]["ids"]
    assert ulid_uuid(text)
