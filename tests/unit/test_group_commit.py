"""Natural group commit: what piles up is one batch, and what is slow, refused or too much harms no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from services.core.domain.errors import Unavailable
from services.core.engine.group_commit import OVERLOADED, Bounds, GroupCommit, Waiting
from services.core.runtime.clock import SystemClock
from tests.support.engine import HandClock

Batch = Sequence[Waiting[int, str]]


class Commits:
    """Commits that a test lets go on: one entry for each."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = asyncio.Semaphore(0)
        self.free = asyncio.Semaphore(0)

    async def commit(self, batch: Batch) -> None:
        self.batches.append([waiting.item for waiting in batch])
        self.begun.release()
        await self.free.acquire()
        for waiting in batch:
            waiting.settle(f"done {waiting.item}")

    async def begins(self) -> None:
        async with asyncio.timeout(30):
            await self.begun.acquire()

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self.free.release()


def asked(line: GroupCommit[int, str], items: Sequence[int], key: str = "a", size: int = 1) -> list[asyncio.Task[str]]:
    return [asyncio.create_task(line.commit(item, key=key, size=size)) for item in items]


async def test_a_lone_item_waits_for_nothing_and_what_piles_up_is_one_batch() -> None:
    commits = Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), Bounds(lanes=1))
    first = asked(line, [0])
    await commits.begins()
    rest = asked(line, range(1, 6))
    commits.let_go(2)
    assert await asyncio.gather(*first, *rest) == [f"done {item}" for item in range(6)]
    assert commits.batches == [[0], [1, 2, 3, 4, 5]]


async def test_a_batch_is_bounded_in_items_and_bytes() -> None:
    commits = Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), Bounds(items=3, size=100, lanes=1))
    tasks = asked(line, [0]) + asked(line, range(1, 5)) + asked(line, [5], size=90) + asked(line, [6], size=200)
    commits.let_go(10)
    await asyncio.gather(*tasks)
    assert commits.batches == [[0, 1, 2], [3, 4, 5], [6]]


async def test_a_slow_commit_holds_up_nobody_behind_it_and_lanes_are_few() -> None:
    commits = Commits()
    wider = Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), Bounds(lanes=2, slow_s=0.01))
    beside: GroupCommit[int, str] = GroupCommit(wider.commit, SystemClock(), Bounds(lanes=3, slow_s=0.01))
    tasks = asked(line, [0]) + asked(beside, [0])
    await commits.begins()
    await wider.begins()
    tasks += asked(line, [1, 2]) + asked(beside, [1, 2])
    await commits.begins()  # though the first has not ended
    await wider.begins()
    tasks += asked(line, [3]) + asked(beside, [3])
    await wider.begins()
    assert wider.batches == [[0], [1, 2], [3]]
    assert commits.batches == [[0], [1, 2]], "no third lane"
    commits.let_go(3)
    wider.let_go(3)
    await asyncio.gather(*tasks)
    assert commits.batches[2] == [3]


async def test_where_much_waits_another_lane_takes_it_at_once() -> None:
    commits = Commits()
    bounds = Bounds(lanes=2, slow_s=60.0, size=100, much=100)
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), bounds)
    tasks = asked(line, [0], size=50)
    await commits.begins()
    tasks += asked(line, [1], size=99)
    await asyncio.sleep(0)
    assert commits.batches == [[0]]
    tasks += asked(line, [2], size=1)
    await commits.begins()
    tasks += asked(line, [3, 4], size=90)
    await asyncio.sleep(0)
    assert commits.batches == [[0], [1, 2]], "no third lane"
    commits.let_go()
    await commits.begins()
    commits.let_go(3)
    await asyncio.gather(*tasks)
    assert commits.batches == [[0], [1, 2], [3], [4]]


async def test_one_lane_is_opened_for_what_comes_together() -> None:
    commits = Commits()
    bounds = Bounds(lanes=3, slow_s=60.0, size=1_000, much=10)
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), bounds)
    tasks = asked(line, [0])
    await commits.begins()
    tasks += asked(line, range(1, 6), size=10)
    await commits.begins()
    commits.let_go(2)
    await asyncio.gather(*tasks)
    assert commits.batches == [[0], [1, 2, 3, 4, 5]]


async def test_p5_whose_items_wait_for_too_long_is_told_to_come_again_and_nobody_else() -> None:
    clock, commits = HandClock(), Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, clock, Bounds(lanes=1, patience_s=1.0))
    tasks = asked(line, [0])
    await commits.begins()
    tasks += asked(line, [1], key="a") + asked(line, [2], key="b")
    await asyncio.sleep(0)
    clock.seconds += 1.1
    with pytest.raises(Unavailable) as refused:
        await line.commit(3, key="a", size=1)
    assert (refused.value.reason, refused.value.metadata) == (OVERLOADED, {"retry_after_s": "1"})
    tasks += asked(line, [4], key="c")
    commits.let_go(2)
    await asyncio.gather(*tasks)
    commits.let_go()
    assert await line.commit(5, key="a", size=1) == "done 5"


async def test_what_waits_is_bounded_in_bytes() -> None:
    commits = Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), Bounds(lanes=1, waiting_size=100))
    tasks = asked(line, [0], size=500)  # alone it may be as big as it likes
    await commits.begins()
    tasks += asked(line, [1, 2], size=50)
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await line.commit(3, key="b", size=1)
    commits.let_go(2)
    await asyncio.gather(*tasks)


async def test_a_fault_is_the_end_of_its_batch_alone() -> None:
    async def commit(batch: Batch) -> None:
        for waiting in batch:
            if waiting.item == 1:
                raise ValueError("odd")
            waiting.settle("done")

    line: GroupCommit[int, str] = GroupCommit(commit, SystemClock(), Bounds(items=2))
    ends = await asyncio.gather(*asked(line, range(4)), return_exceptions=True)
    assert [str(end) for end in ends] == ["done", "odd", "done", "done"]


async def test_who_has_waited_for_long_does_not_wait_for_the_next_attempt_at_a_database_that_is_away() -> None:
    clock, commits = HandClock(), Commits()

    async def away(batch: Batch) -> None:
        await commits.commit(batch[:0])
        raise Unavailable("away")

    line: GroupCommit[int, str] = GroupCommit(away, clock, Bounds(items=1, lanes=1))
    tasks = asked(line, [0])
    await commits.begins()
    tasks += asked(line, range(1, 9))
    await asyncio.sleep(0)
    clock.seconds += 2
    tasks += asked(line, [9], key="b")
    await asyncio.sleep(0)
    commits.let_go(2)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(end, Unavailable) for end in ends)
    assert len(commits.batches) == 2, "the one that came late had an attempt of its own"


async def test_a_batch_is_taken_when_its_turn_has_come_and_the_line_says_when_it_is_idle() -> None:
    waits, gate, idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
    batches: list[list[int]] = []

    @asynccontextmanager
    async def turn() -> AsyncIterator[None]:
        waits.set()
        await gate.wait()
        yield

    async def commit(batch: Batch) -> None:
        batches.append([waiting.item for waiting in batch])
        for waiting in batch:
            waiting.settle("done")

    line: GroupCommit[int, str] = GroupCommit(commit, SystemClock(), Bounds(lanes=1), turn=turn, idle=idle.set)
    tasks = asked(line, [0])
    await waits.wait()
    tasks += asked(line, [1])
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*tasks)
    assert batches == [[0, 1]]
    async with asyncio.timeout(30):
        await idle.wait()


async def test_who_goes_away_takes_nobody_along() -> None:
    commits = Commits()
    line: GroupCommit[int, str] = GroupCommit(commits.commit, SystemClock(), Bounds(lanes=1))
    tasks = asked(line, [0])
    await commits.begins()
    tasks += asked(line, [1, 2])
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    commits.let_go(2)
    assert await tasks[2] == "done 2"
