"""How much is remembered of runs that wait."""

from __future__ import annotations

import random
from uuid import UUID

from services.core.domain.cause import Answered
from services.core.domain.op import WaitForEvent
from services.core.domain.run import Limits
from services.core.domain.transition import decide
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.commit_item import Committed
from services.executor.asleep import Asleep
from services.executor.record import commit_item
from services.executor.remembered import Remembered
from tests.support.builders import lease


def waiting(number: int) -> Asleep:
    held = lease(run=UUID(int=number))
    wait = WaitForEvent(id="go", name="go", event="go", timeout_ms=60_000)
    decision = decide(held.view(Limits()), Answered((wait,)), held.reached_ms)
    item = commit_item(held, decision, UlidFactory(SystemClock(), random.Random(1)))
    done = Committed(held.mail, "w", None)
    held.advance(decision, item, done)
    asleep = Asleep.of(held, item, done, item.wait_rows[0])
    assert asleep is not None
    return asleep


def kept(remembered: Remembered, *numbers: int) -> list[int]:
    return [asleep.run.int for asleep in remembered.of(UUID(int=number) for number in numbers)]


def test_the_oldest_are_forgotten_where_it_is_too_much() -> None:
    runs = [waiting(number) for number in range(1, 6)]
    remembered = Remembered(3 * runs[0].size)
    for run in runs:
        remembered.keep(run)
    assert kept(remembered, 1, 2, 3, 4, 5) == [3, 4, 5]


def test_one_that_waits_again_is_among_the_newest_and_counts_once() -> None:
    runs = [waiting(number) for number in range(1, 4)]
    remembered = Remembered(3 * runs[0].size)
    for run in (*runs, waiting(1), waiting(1)):
        remembered.keep(run)
    remembered.keep(waiting(4))
    assert kept(remembered, 1, 2, 3, 4) == [1, 3, 4]


def test_what_was_taken_makes_room() -> None:
    runs = [waiting(number) for number in range(1, 4)]
    remembered = Remembered(2 * runs[0].size)
    remembered.keep(runs[0])
    remembered.keep(runs[1])
    remembered.take(runs[0].run)
    remembered.take(runs[0].run)
    remembered.keep(runs[2])
    assert kept(remembered, 1, 2, 3) == [2, 3]


def test_what_is_more_than_all_of_it_is_not_kept() -> None:
    remembered = Remembered(10)
    remembered.keep(waiting(1))
    assert kept(remembered, 1) == []
