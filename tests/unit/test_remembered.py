"""What is remembered of runs that wait, and how much."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from uuid import UUID

import pytest
from msgspec.structs import replace

from services.core.domain.cause import Answered
from services.core.domain.envelope import EventInfo
from services.core.domain.op import Op, OpError, Sleep, StepFailed, WaitForEvent
from services.core.domain.run import Limits
from services.core.domain.transition import decide
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.commit_item import Committed
from services.core.store.database import Database
from services.executor.aftermath import Aftermath
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


def long_input(number: int) -> tuple[str, Op]:
    given = StepFailed(id="go", name="go", error=OpError("Odd", "no"), input=f'"{number}{"x" * 32_000}"')
    return "{}", given


def nested_event(number: int) -> tuple[str, Op]:
    """Which takes much more room when it is parsed, as it is for the wait's condition."""
    wait = WaitForEvent(id="go", name="go", event="go", condition="event.data.n == async.data.n", timeout_ms=60_000)
    return f'{{"n":{number},"all":[{",".join(["{}"] * 3_000)}]}}', wait


@pytest.mark.parametrize("rests", [long_input, nested_event])
@pytest.mark.parametrize("steps", [0, 150])
def test_it_takes_no_more_room_than_is_counted(rests: Callable[[int], tuple[str, Op]], steps: int) -> None:
    counted = 0
    kept = []
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            data, op = rests(number)
            held = lease(run=UUID(int=number), steps=steps)
            held.event = EventInfo(id="e", name="e", data=data, ts=1)
            for step in range(steps):
                held.memo.completed(f"step-{number}-{step}", str(step))
            held.request(1)
            decision = decide(held.view(Limits()), Answered((op,)), held.reached_ms)
            item = commit_item(held, decision, UlidFactory(SystemClock(), random.Random(1)))
            done = Committed(held.mail, item.st, None)
            held.advance(decision, item, done)
            asleep = Asleep.of(held, item, done, item.wait_rows[0])
            assert asleep is not None
            counted += asleep.size
            kept.append(asleep)
        del held, decision, item, done, data, op, asleep
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 20
    assert after - before < 1.3 * counted


def test_what_is_more_than_all_of_it_is_not_kept() -> None:
    remembered = Remembered(10)
    remembered.keep(waiting(1))
    assert kept(remembered, 1) == []


def event() -> Op:
    return WaitForEvent(id="go", name="go", event="go", timeout_ms=10**9)


def fails() -> Op:
    return StepFailed(id="go", name="go", error=OpError("Odd", "no"), retry_after_ms=1_000)


def sleep(ms: int) -> Callable[[], Op]:
    return lambda: Sleep(id="go", name="go", for_ms=ms)


def sleep_until(ahead_ms: int) -> Callable[[], Op]:
    return lambda: Sleep(id="go", name="go", until_ms=SystemClock().unix_ms() + ahead_ms)


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("op", "is_kept"),
    [
        (event, True),
        (fails, True),
        (sleep(30_000), True),
        (sleep_until(30_000), True),
        (sleep(3_600_000), False),
        (sleep_until(3_600_000), False),
    ],
)
def test_a_run_is_remembered_that_may_go_on_soon(op: Callable[[], Op], is_kept: bool, at_once: bool) -> None:
    """`at_once`: it is let go with the commit that begins the wait. Many long sleeps would displace the others."""
    clock = SystemClock()
    hints, ids = Hints(NullPublisher()), UlidFactory(clock, random.Random(1))
    database, definitions = Database("postgresql://nowhere", name="test"), DefinitionsCache(None)
    aftermath = Aftermath(database, hints, EventAcceptor(database, definitions, hints, ids), clock)
    kept: list[Asleep] = []
    aftermath.remember = kept.append
    held = lease(reached_ms=clock.unix_ms())
    decision = decide(held.view(Limits()), Answered((op(),)), held.reached_ms)
    item = commit_item(held, decision, ids)
    held.advance(decision, item, Committed(held.mail, item.st if at_once else "r", None))
    if not at_once:
        item = replace(item, wait_rows=(), step_rows=(), attempt_rows=())
    aftermath.of(held, decision, item, Committed(held.mail, item.st, None))
    assert [asleep.run for asleep in kept] == ([held.run] if is_kept else [])
