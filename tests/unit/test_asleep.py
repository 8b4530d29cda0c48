"""What is remembered of a run that sleeps, and when it is not used."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from services.core.domain.cause import Answered
from services.core.domain.gate_rule import RunGates
from services.core.domain.op import Op, Sleep, StepCompleted
from services.core.domain.run import Limits
from services.core.domain.transition import decide
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.commit_item import CommitItem, Committed
from services.executor.asleep import Asleep
from services.executor.lease import Lease
from services.executor.record import commit_item
from tests.support.builders import lease

TAKEN = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
TAKEN_MS = 1_767_323_045_678


def rested(held: Lease, *ops: Op, st: str = "s") -> tuple[CommitItem, Committed]:
    """The commit of these ops, with which the lease is let go."""
    decision = decide(held.view(Limits()), Answered(ops), held.reached_ms)
    item = commit_item(held, decision, UlidFactory(SystemClock(), random.Random(1)))
    done = Committed(held.mail, st, None)
    held.advance(decision, item, done)
    return item, done


def nap(step_id: str = "z") -> Sleep:
    return Sleep(id=step_id, name=step_id, for_ms=1_000)


def result(step_id: str) -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, output='"x"')


def claimed(was: Lease, **values: Any) -> dict[str, Any]:
    """The row of a run that was woken by the sleep's end, to which nothing else has happened."""
    row: dict[str, Any] = {
        "epoch": was.epoch + 1,
        "rev": was.rev,
        "mail": was.mail + 1,
        "taken": TAKEN,
        "bytes": was.size,
        "gv": 0,
        "ga": None,
        "gb": None,
    }
    return {**row, **values}


class Slept(NamedTuple):
    """What is remembered of a run, and the waits that it rests over."""

    asleep: Asleep
    waits: set[UUID]

    def woken(self, row: dict[str, Any]) -> Lease | None:
        return self.asleep.woken(row, self.waits)


def asleep(held: Lease, *ops: Op, st: str = "s") -> Slept | None:
    item, done = rested(held, *ops, st=st)
    remembered = Asleep.of(held, item, done, item.wait_rows[-1])
    return None if remembered is None else Slept(remembered, {row.id for row in item.wait_rows})


def woken(held: Lease, **values: Any) -> Lease | None:
    remembered = asleep(held, nap())
    assert remembered is not None
    return remembered.woken(claimed(held, **values))


def test_it_goes_on_after_the_sleep_under_a_lease_of_its_own() -> None:
    held = lease(function_failures=0, attempts=3)
    held.memo.completed("a", "1")
    went_on = woken(held)
    assert went_on is not None
    assert went_on is not held
    assert (went_on.epoch, went_on.rev, went_on.mail) == (held.epoch + 1, held.rev, held.mail + 1)
    assert went_on.memo.order == '"a","z"'
    assert went_on.open_steps == {}
    assert (went_on.steps, went_on.attempts, went_on.gates) == (held.steps, 3, RunGates(0, None, None))
    assert (went_on.span, went_on.affinity, went_on.under_way, went_on.invocations) == (None, None, None, 0)


def test_an_instant_counts_as_reached_when_it_is() -> None:
    went_on = woken(lease())
    assert went_on is not None
    assert went_on.reached_ms == TAKEN_MS
    assert datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=TAKEN_MS) <= TAKEN


@pytest.mark.parametrize("moved", ["epoch", "rev", "mail"])
@pytest.mark.parametrize("by", [-1, 1, 7])
def test_it_is_read_when_anything_else_has_happened(moved: str, by: int) -> None:
    held = lease()
    remembered = asleep(held, nap())
    assert remembered is not None
    row = claimed(held)
    assert remembered.woken({**row, moved: row[moved] + by}) is None


def test_it_is_read_when_another_wait_is_over_than_its_own() -> None:
    held = lease()
    remembered = asleep(held, nap())
    assert remembered is not None
    assert remembered.asleep.woken(claimed(held), {uuid4()}) is None


def test_it_is_not_remembered_while_another_step_is_open() -> None:
    assert asleep(lease(open_steps={"e": "e"}), nap()) is None


def test_it_is_not_remembered_if_something_was_delivered_before_it_slept() -> None:
    assert asleep(lease(), nap(), st="q") is None


def test_a_sleep_after_results_of_the_same_answer_is_remembered() -> None:
    held = lease()
    remembered = asleep(held, result("a"), nap())
    assert remembered is not None
    went_on = remembered.woken(claimed(held))
    assert went_on is not None
    assert went_on.memo.order == '"a","z"'


def test_a_sleep_before_another_result_is_not_remembered() -> None:
    held = lease()
    item, done = rested(held, nap())
    held.steps += 1  # of a step that a worker executed beside it
    assert Asleep.of(held, item, done, item.wait_rows[0]) is None


def test_a_held_run_is_not_remembered() -> None:
    """A worker may go on with it: what it does then is not known yet."""
    held = lease()
    item, _ = rested(held, nap(), st="r")
    assert Asleep.of(held, replace(item, st="r"), Committed(held.mail, "r", None), item.wait_rows[0]) is None


def test_one_of_which_the_wait_is_over_already_is_not_remembered() -> None:
    held = lease()
    item, done = rested(held, nap())
    del held.open_steps["z"]
    assert Asleep.of(held, item, done, item.wait_rows[0]) is None


def test_much_is_not_remembered() -> None:
    held = lease()
    held.memo.completed("a", '"' + "x" * 60_000 + '"')
    assert asleep(held, nap()) is None
