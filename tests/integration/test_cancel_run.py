"""Cancelling runs: whoever has the row first decides, and the holder is told."""

from __future__ import annotations

import asyncio
import random
from uuid import UUID, uuid4

import pytest

from services.core.domain.errors import Conflict, NotFound
from services.core.domain.op import Invoke, Sleep, StepCompleted, WaitForEvent
from services.core.domain.run import Status
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from services.core.store.commit_item import Committed, Fenced
from services.core.store.database import Database
from tests.support.builders import item, serving
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows
from tests.support.locks import held_up

__all__ = ["database", "postgres_url", "recorder", "rows"]


@pytest.fixture
def canceller(database: Database, recorder: Recorder) -> RunCanceller:
    return RunCanceller(database, Hints(recorder))


async def end(rows: LiveRows, run: UUID) -> None:
    """Cancel a run and die before what follows for its children."""
    await rows.rows("select * from rt.finish_v1($1, '{cancelled}', '{null}', '{null}', true)", [run])


@pytest.mark.parametrize("rests", ["queued", "delayed", "sleeping", "waiting", "running"])
async def test_every_active_run_can_be_cancelled_and_leaves_nothing_open(
    hand: Hand, rows: LiveRows, canceller: RunCanceller, recorder: Recorder, rests: str
) -> None:
    run = await hand.start("work", delay_ms=DAY_MS if rests == "delayed" else None)
    owner = None
    if rests == "sleeping":
        await hand.answer(run, Sleep(id="z", name="z", for_ms=DAY_MS))
    elif rests == "waiting":
        await hand.answer(run, WaitForEvent(id="w", name="w", event="paid"))
    elif rests == "running":
        await rows.claim(owner := await rows.owner(), [run])
    assert (await rows.status(run)).name.lower() == rests
    await canceller.cancel(hand.tenant, run)
    assert await rows.status(run) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0
    assert recorder.cancelled == ({} if owner is None else {owner: [run]})


async def test_what_is_not_there_or_over_is_refused(hand: Hand, rows: LiveRows, canceller: RunCanceller) -> None:
    run = await hand.start("work")
    with pytest.raises(NotFound):
        await canceller.cancel(hand.tenant, uuid4())
    with pytest.raises(NotFound):
        await canceller.cancel(await rows.value("select rt.create_tenant('other', '')"), run)
    assert await rows.status(run) is Status.QUEUED
    await canceller.cancel(hand.tenant, run)
    with pytest.raises(Conflict, match="cancelled"):
        await canceller.cancel(hand.tenant, run)


async def test_c1_of_a_cancel_and_a_commit_the_first_decides_and_both_are_whole(
    hand: Hand, rows: LiveRows, canceller: RunCanceller
) -> None:
    owner = await rows.owner()
    runs = await rows.start(60)
    await rows.claim(owner, runs)
    lives = [dict(await rows.live(run) or {}) for run in runs]
    dice = random.Random(1)

    async def cancel(number: int) -> None:
        await asyncio.sleep(dice.uniform(0, 0.05))
        await canceller.cancel(rows.tenant, runs[number])

    async with serving(rows.database, owner) as pipeline:

        async def commit(number: int) -> bool:
            await asyncio.sleep(dice.uniform(0, 0.05))
            try:
                done = await pipeline.commit(item(lives[number], "a"))
            except Fenced:
                return False
            return isinstance(done, Committed)

        cancels = [asyncio.create_task(cancel(number)) for number in range(60)]
        committed = await asyncio.gather(*map(commit, range(60)))
        await asyncio.gather(*cancels)
    for number, run in enumerate(runs):
        assert await rows.status(run) is Status.CANCELLED
        steps = await rows.value("select count(*) from rt.steps where run = $1", run)
        assert steps == int(committed[number]), "a step is acknowledged exactly if it is stored"
        end = await rows.row("select epoch, rev from rt.ends where run = $1", run)
        assert end is not None
        assert tuple(end) == (lives[number]["epoch"] + 1, lives[number]["rev"] + steps)


@pytest.mark.parametrize("keep", [False, True])
async def test_c12_children_go_with_their_parent_unless_they_are_kept(
    hand: Hand, rows: LiveRows, canceller: RunCanceller, keep: bool
) -> None:
    parent = await rows.start_one()
    children = await rows.start(2, parent=parent)
    ended, active = children
    await canceller.cancel(rows.tenant, ended)
    await canceller.cancel(rows.tenant, parent, keep_children=keep)
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await rows.status(active) is (Status.QUEUED if keep else Status.CANCELLED)
    assert await rows.value("select count(*) from rt.mark where kind = 'cancel_children'") == 0


async def test_a_child_that_a_retried_parent_has_found_again_is_not_cancelled_by_its_earlier_life(
    hand: Hand, rows: LiveRows, canceller: RunCanceller
) -> None:
    """The cascade of the cancel comes late: one child is the new life's too, by idempotency, the other is not."""
    await hand.declare({"name": "work"}, {"name": "part", "idempotency": "event.data.key"})
    parent, asked = await hand.start("work"), Invoke(id="i", name="i", workflow="part", data='{"key": 1}')
    await hand.answer(parent, asked)
    shared = await rows.value("select child from rt.wait where run = $1", parent)
    other = await rows.start_one(parent=parent)
    await end(rows, parent)
    await RunRetrier(hand.database, DefinitionsCache(None), Hints(NullPublisher())).retry(rows.tenant, parent)
    await hand.answer(parent, asked)
    assert await rows.value("select child from rt.wait where run = $1", parent) == shared
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await rows.status(parent) is Status.WAITING
    assert await rows.status(shared) is Status.QUEUED
    assert await rows.status(other) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.mark") == 0
    await canceller.cancel(rows.tenant, parent)
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await rows.status(shared) is Status.CANCELLED, "with the life that waited for it"


async def test_a_wait_for_a_child_that_is_just_being_stored_is_seen_by_the_late_cascade(
    hand: Hand, rows: LiveRows, canceller: RunCanceller
) -> None:
    await hand.declare({"name": "work"}, {"name": "part", "idempotency": "event.data.key"})
    parent, asked = await hand.start("work"), Invoke(id="i", name="i", workflow="part", data='{"key": 1}')
    await hand.answer(parent, asked)
    shared = await rows.value("select child from rt.wait where run = $1", parent)
    await end(rows, parent)
    await RunRetrier(hand.database, DefinitionsCache(None), Hints(NullPublisher())).retry(rows.tenant, parent)
    async with slow_commits(hand.database, "rt.wait") as stopped:
        invoking = asyncio.create_task(hand.answer(parent, asked))
        await stopped()
        await rows.rows("select * from rt.apply_marks_v1(0, 100)")
        assert await rows.status(shared) is Status.QUEUED
    await invoking
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await rows.status(shared) is Status.QUEUED
    assert await rows.value("select count(*) from rt.mark") == 0


async def test_keeping_the_children_keeps_those_of_this_life(
    hand: Hand, rows: LiveRows, canceller: RunCanceller
) -> None:
    parent = await hand.start("work")
    earlier = await rows.start_one(parent=parent)
    await end(rows, parent)
    await RunRetrier(hand.database, DefinitionsCache(None), Hints(NullPublisher())).retry(rows.tenant, parent)
    later = await rows.start_one(parent=parent)
    await canceller.cancel(rows.tenant, parent, keep_children=True)
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    assert await rows.status(earlier) is Status.CANCELLED, "as its end had promised"
    assert await rows.status(later) is Status.QUEUED


async def test_c4_a_cancel_whose_answer_was_lost_is_a_success(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    run = await hand.start("work")
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        async with slow_commits(hand.database, f"t_{hand.tenant}.ends") as stopped:
            cancelling = asyncio.create_task(RunCanceller(pool, Hints(recorder)).cancel(hand.tenant, run))
            await stopped()
            cut()
            async with hand.database.connection() as watcher:
                await held_up(watcher, 2)  # the lost one, and the same once more
            assert not cancelling.done()
        await cancelling
        await pool.close()
    assert await rows.status(run) is Status.CANCELLED


async def test_a_memoized_step_stays_after_a_cancel(hand: Hand, rows: LiveRows, canceller: RunCanceller) -> None:
    run = await hand.start("work")
    await hand.answer(run, StepCompleted(id="a", name="a", output="1"))
    await canceller.cancel(hand.tenant, run)
    stored = await rows.rows("select sid, status::text as status from rt.steps where run = $1", run)
    assert [tuple(row) for row in stored] == [("a", "c")]
