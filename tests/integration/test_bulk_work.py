"""Bulk jobs at work: each run once, whoever works and whatever crashes (engine section 3)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from services.core.domain.errors import Conflict, Unavailable
from services.core.domain.run import Status
from services.core.engine import bulk_batch, bulk_work
from services.core.engine.bulk_work import BulkWorker
from services.core.store.run_search import find_runs
from services.scheduler.duties.bulk import Bulk
from tests.support.bulk import Jobs, cancelled_runs, counts, is_idle, jobs, states
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.locks import held_up

__all__ = ["jobs"]


async def test_a_run_that_changed_after_it_was_found_is_skipped(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    runs = await cancelled_runs(hand, 3)
    id = await jobs.start("retry")
    worker = jobs.worker()

    async def find_and_change(*args: Any, **more: Any) -> Any:
        found = await find_runs(*args, **more)
        await rows.value("delete from rt.ends where run = $1", runs[0])
        await rows.value("delete from rt.runs where id = $1", runs[0])
        await rows.value("update rt.ends set status = 'completed' where run = $1", runs[1])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_work, "find_runs", find_and_change)
        await worker.work()
    assert counts(await jobs.get(id)) == ("completed", 3, 1, 2, 0)


async def test_batches_move_the_cursor_and_show_progress(
    jobs: Jobs, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_work, "BATCH", 4)
    await cancelled_runs(hand, 10)
    id = await jobs.start("retry")
    assert counts(await jobs.get(id)) == ("queued", 10, 0, 0, 0)
    seen = []
    for _ in range(3):
        await jobs.worker().work()
        seen.append(counts(await jobs.get(id)))
    assert seen == [("running", 10, 4, 0, 0), ("running", 10, 8, 0, 0), ("completed", 10, 10, 0, 0)]
    job = await jobs.get(id)
    assert job.created_ms is not None
    assert job.ended_ms is not None


async def test_large_events_make_smaller_batches(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_batch, "_MEMORY", 2_500)
    for _ in range(5):
        run = await hand.start("work", json.dumps({"x": "x" * 1_000}))
        await hand.cancel(run)
    id = await jobs.start("replay")
    assert await jobs.work() == 3
    assert counts(await jobs.get(id)) == ("completed", 5, 5, 0, 0)


async def test_each_run_is_done_once_however_many_work_at_it(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that do not keep to their turns: the cursor alone keeps it right."""
    monkeypatch.setattr(bulk_work, "BATCH", 3)
    monkeypatch.setattr(bulk_work, "_TURN_MS", 0)
    runs = await cancelled_runs(hand, 30)
    id = await jobs.start("replay")

    async def work() -> None:
        worker = jobs.worker()
        while not await is_idle(hand):
            await worker.work()

    async with asyncio.timeout(30):
        await asyncio.gather(*(work() for _ in range(4)))
    assert counts(await jobs.get(id)) == ("completed", 30, 30, 0, 0)
    replays = await rows.rows("select replay_of from rt.runs where source = 'replay'")
    assert Counter(row["replay_of"] for row in replays) == Counter(runs)


async def test_a_batch_whose_worker_dies_before_its_commit_is_done_by_another(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await cancelled_runs(hand, 5)
    id = await jobs.start("replay")

    async def die(*_: Any) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(bulk_work, "advance_job", die)
        with pytest.raises(asyncio.CancelledError):
            await jobs.worker().work()
    assert await rows.value("select count(*) from rt.runs where source = 'replay'") == 0
    assert await jobs.worker().work() is None, "the dead one's turn is not over"
    await rows.value("update rt.bulk_job set turn_at = rt.now()")
    await jobs.work()
    assert counts(await jobs.get(id)) == ("completed", 5, 5, 0, 0)
    replays = await rows.rows("select replay_of from rt.runs where source = 'replay'")
    assert Counter(row["replay_of"] for row in replays) == Counter(runs)


async def test_a_commit_whose_answer_is_lost_is_not_done_again(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cancelled_runs(hand, 4)
    id = await jobs.start("replay")
    worker = jobs.worker()
    once = BulkWorker._once
    lost: list[Any] = []

    async def once_and_lose(self: BulkWorker, *args: Any) -> Any:
        done = await once(self, *args)
        if not lost:
            lost.append(done)
            raise Unavailable("the connection broke")
        return done

    monkeypatch.setattr(BulkWorker, "_once", once_and_lose)
    await worker.work()
    assert len(lost) == 1
    assert counts(await jobs.get(id)) == ("completed", 4, 4, 0, 0)
    assert await rows.value("select count(*) from rt.runs where source = 'replay'") == 4


async def test_one_run_that_breaks_a_batch_does_not_stop_the_others(
    jobs: Jobs, hand: Hand, rows: LiveRows, caplog: pytest.LogCaptureFixture
) -> None:
    runs = await cancelled_runs(hand, 4)
    await rows.value(
        "create function refuse() returns trigger language plpgsql as "
        "$$ begin raise 'broken' using errcode = '22000'; end $$"
    )
    await rows.value(
        "create trigger refuse before insert on rt.live "
        f"for each row when (new.id = '{runs[1]}') execute function refuse()"
    )
    job = await jobs.done("retry")
    assert counts(job) == ("completed", 4, 3, 0, 1)
    assert [fault.run for fault in job.faults] == [runs[1]]
    assert "broken" not in job.faults[0].error.message, "what the database says is for the log"
    assert "broken" in caplog.text


async def test_a_stopped_job_does_no_more_and_says_so(jobs: Jobs, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_work, "BATCH", 2)
    await cancelled_runs(hand, 5)
    id = await jobs.start("retry")
    await jobs.worker().work()
    stopped = await jobs.jobs.stop(jobs.caller, id)
    assert counts(stopped) == ("stopped", 5, 2, 0, 0)
    assert await jobs.worker().work() is None
    assert await jobs.jobs.stop(jobs.caller, id) == stopped
    other = await jobs.done("retry")
    assert other.id is not None
    assert other.succeeded == 3
    with pytest.raises(Conflict) as refused:
        await jobs.jobs.stop(jobs.caller, other.id)
    assert refused.value.reason == "JOB_ENDED"


async def test_a_job_that_is_stopped_during_a_batch_changes_nothing_more(
    jobs: Jobs, hand: Hand, rows: LiveRows
) -> None:
    runs = await cancelled_runs(hand, 2)
    id = await jobs.start("retry")

    async def find_and_stop(*args: Any, **more: Any) -> Any:
        found = await find_runs(*args, **more)
        await jobs.jobs.stop(jobs.caller, id)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_work, "find_runs", find_and_stop)
        await jobs.worker().work()
    assert counts(await jobs.get(id)) == ("stopped", 2, 0, 0, 0)
    assert await states(rows, runs) == [Status.CANCELLED] * 2


async def test_jobs_take_turns(jobs: Jobs, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_work, "BATCH", 2)
    await cancelled_runs(hand, 6)
    long = await jobs.start("replay", states=["cancelled"])
    short = await jobs.start("retry", query="nothing")
    worker = jobs.worker()
    for _ in range(2):
        await worker.work()
    assert (await jobs.get(long)).state == "running"
    assert (await jobs.get(short)).state == "completed"
    await jobs.work()


async def test_a_job_of_a_project_that_is_gone_gives_up(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    await jobs.start("cancel")
    await rows.value("delete from rt.projects")
    await jobs.work()
    row = await rows.row("select state, error from rt.bulk_job")
    assert row is not None
    assert (row["state"], json.loads(row["error"])["name"]) == ("failed", "NOT_FOUND")


async def test_the_duty_works_when_it_is_nudged(jobs: Jobs, hand: Hand) -> None:
    await cancelled_runs(hand, 3)
    duty = Bulk(jobs.worker())
    assert await duty.run_once() == {}
    id = await jobs.start("retry")
    duty.nudge()
    async with asyncio.timeout(10):
        while (await jobs.get(id)).state != "completed":
            await duty.idle()
            await duty.run_once()


async def test_a_cancel_waits_for_a_commit_in_flight_and_what_committed_first_stays(
    jobs: Jobs, hand: Hand, rows: LiveRows
) -> None:
    owner = await rows.owner()
    ending, other = [await rows.value("select id from rt.live where id = $1", await hand.start("work")) for _ in "ab"]
    await rows.claim(owner, [ending, other])
    id = await jobs.start("cancel")
    async with rows.database.transaction() as connection:
        await connection.execute("select from rt.live where id = $1 for update", ending)
        working = asyncio.create_task(jobs.work())
        await held_up(connection)
        none: list[Any] = [None]
        await connection.fetch("select * from rt.finish_v1($1, $2, $3, $4, false)", [ending], ["completed"], none, none)
    await working
    assert await rows.status(ending) is Status.COMPLETED
    assert counts(await jobs.get(id)) == ("completed", 2, 1, 1, 0)
