"""Bulk cancel, retry and replay: each run once, whoever works and whatever crashes (engine section 3)."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.core.domain.bulk_job import MAX_FAULTS, BulkJob
from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from services.core.domain.op import Invoke, RunCompleted, Sleep, StepCompleted
from services.core.domain.run import Status
from services.core.domain.run_record import RunFilter
from services.core.engine import bulk_batch, bulk_job, bulk_work
from services.core.engine.bulk_job import BulkJobs, BulkRequest
from services.core.engine.bulk_work import BulkWorker
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.run_search import find_runs
from services.scheduler.duties.bulk import Bulk
from services.scheduler.duties.marks import Marks
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder

A_STEP = StepCompleted(id="a", name="a", output="1")
THE_END = RunCompleted(output="2")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Jobs:
    """Jobs of the hand's project, worked when the test says so."""

    def __init__(self, hand: Hand, recorder: Recorder) -> None:
        self.hand = hand
        self.recorder = recorder
        self.caller = Caller(hand.tenant, "t", frozenset())
        self.nudged = 0
        self.jobs = BulkJobs(hand.database, hand.ids, SystemClock(), self._nudge)

    def _nudge(self) -> None:
        self.nudged += 1

    def worker(self) -> BulkWorker:
        """Another process that works jobs."""
        ids = UlidFactory(SystemClock(), random.Random())
        return BulkWorker(self.hand.database, DefinitionsCache(None), Hints(self.recorder), ids)

    async def ask(self, action: str, *, dry_run: bool = False, **wanted: Any) -> tuple[BulkJob, tuple[UUID, ...]]:
        wanted["states"] = frozenset(wanted.get("states", ()))
        request = BulkRequest(
            caller=self.caller,
            project=self.hand.project,
            action=action,
            wanted=RunFilter(**wanted),
            dry_run=dry_run,
            trace=TRACE,
        )
        return await self.jobs.start(request)

    async def start(self, action: str, **wanted: Any) -> UUID:
        job, _ = await self.ask(action, **wanted)
        assert job.id is not None
        async with self.hand.database.connection() as connection:
            # The first turn is a few milliseconds after the job was asked for.
            await connection.execute("update rt.bulk_job set turn_at = rt.now() where id = $1", job.id)
        return job.id

    async def get(self, id: UUID) -> BulkJob:
        return await self.jobs.get(self.hand.tenant, id)

    async def done(self, action: str, **wanted: Any) -> BulkJob:
        """A job that was worked to its end."""
        id = await self.start(action, **wanted)
        await self.work()
        return await self.get(id)

    async def work(self) -> int:
        """Work all there is; in how many batches."""
        worker, batches = self.worker(), 0
        async with asyncio.timeout(30):
            while not await is_idle(self.hand):
                batches += await worker.work() is not None
        return batches


async def is_idle(hand: Hand) -> bool:
    async with hand.database.connection() as connection:
        return not await connection.fetchval("select exists (select from rt.bulk_job where ended_at is null)")


@pytest.fixture
def jobs(hand: Hand, recorder: Recorder) -> Jobs:
    return Jobs(hand, recorder)


def counts(job: BulkJob) -> tuple[str, int, int, int, int]:
    return job.state, job.total, job.succeeded, job.skipped, job.failed


async def cancelled_runs(hand: Hand, count: int, **start: Any) -> list[UUID]:
    runs = [await hand.start("work", **start) for _ in range(count)]
    for run in runs:
        await hand.cancel(run)
    return runs


async def states(rows: LiveRows, runs: Sequence[UUID]) -> list[Status]:
    return [await rows.status(run) for run in runs]


async def test_cancel_ends_active_runs_of_any_state_and_tells_their_holders(
    jobs: Jobs, hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    queued, sleeping, held, ended = [await hand.start("work") for _ in range(4)]
    await hand.answer(sleeping, Sleep(id="s", name="s", for_ms=60_000))
    await hand.answer(ended, THE_END)
    owner = await rows.owner()
    await rows.claim(owner, [held])
    job = await jobs.done("cancel")
    assert counts(job) == ("completed", 3, 3, 0, 0)
    assert await states(rows, [queued, sleeping, held]) == [Status.CANCELLED] * 3
    assert await rows.status(ended) is Status.COMPLETED
    assert recorder.cancelled == {owner: [held]}
    assert await rows.value("select count(*) from rt.wait") == 0
    assert jobs.nudged == 1


async def test_cancel_takes_active_children_along_and_frees_slots(
    jobs: Jobs, hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    limited = {"name": "limited", "concurrency": [{"limit": 1}]}
    await hand.declare({"name": "work"}, {"name": "child"}, limited)
    parent = await hand.start("work")
    await hand.answer(parent, Invoke(id="c", name="c", workflow="child"))
    child = await rows.value("select id from rt.live where parent = $1", parent)
    first, second = await hand.start("limited"), await hand.start("limited")
    await jobs.done("cancel", ids=(parent, first))
    await rows.value("update rt.mark set created_at = created_at - interval '10 s'")
    await Marks(rows.database, Hints(recorder)).run_once()
    assert await states(rows, [parent, child, first]) == [Status.CANCELLED] * 3
    assert await rows.status(second) is Status.QUEUED
    assert second in recorder.ready


async def test_only_runs_in_the_states_that_were_asked_for_are_touched(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    queued, sleeping = await hand.start("work"), await hand.start("work")
    await hand.answer(sleeping, Sleep(id="s", name="s", for_ms=60_000))
    job = await jobs.done("cancel", states=["sleeping"])
    assert counts(job) == ("completed", 1, 1, 0, 0)
    assert await rows.status(queued) is Status.QUEUED


async def test_retry_lets_ended_runs_go_on_with_what_they_have(
    jobs: Jobs, hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}], "concurrency": [{"limit": 2}]})
    runs = [await hand.start("work") for _ in range(3)]
    for run in runs[:2]:
        await hand.answer(run, A_STEP)
    for run in runs:
        await hand.cancel(run)
    completed = await hand.start("work")
    await hand.answer(completed, THE_END)
    job = await jobs.done("retry")
    assert counts(job) == ("completed", 3, 3, 0, 0)
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs[:2]) == 2
    assert await rows.value("select count(*) from rt.wait where kind = 'x'") == 3
    assert Counter(await states(rows, runs)) == {Status.QUEUED: 2, Status.BLOCKED: 1}, "its limit holds"
    assert await rows.status(completed) is Status.COMPLETED
    await hand.send("stop")
    assert await states(rows, runs) == [Status.CANCELLED] * 3


async def test_replay_starts_one_new_run_of_each(jobs: Jobs, hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    await hand.declare({"name": "work"}, {"name": "ship", "triggers": [{"event": "paid"}]})
    started = [await hand.start("work", '{"n": 1}', tags=("red",), idempotency_key="k")]
    started += (await hand.send("paid", '{"n": 2}')).runs
    for run in started:
        await hand.answer(run, THE_END)
    active = await hand.start("work")
    job = await jobs.done("replay")
    assert counts(job) == ("completed", 2, 2, 0, 0), "active ones only if they are asked for"
    new = await rows.rows("select * from rt.runs where source = 'replay' order by replay_of")
    assert [row["replay_of"] for row in new] == sorted(started)
    by_origin = {row["replay_of"]: row for row in new}
    old = {row["id"]: row for row in await rows.rows("select * from rt.runs where id = any ($1)", started)}
    for run in started:
        for column in ("wf", "event", "event_name", "event_data", "tags", "test"):
            assert by_origin[run][column] == old[run][column]
        assert (by_origin[run]["idem"], by_origin[run]["trace"]) == (None, TRACE)
    assert set(recorder.ready) == {row["id"] for row in new}
    assert await rows.status(active) is Status.QUEUED
    again = await jobs.done("replay", states=["queued"])
    assert again.succeeded == 3, "the two replays and the active run"


async def test_a_replay_never_meets_the_runs_it_makes(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_work, "BATCH", 2)
    for _ in range(7):
        await hand.start("work")
    job = await jobs.done("replay", states=["queued"])
    assert counts(job) == ("completed", 7, 7, 0, 0)
    assert await rows.value("select count(*) from rt.runs") == 14


FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({}, [0, 1, 2, 3]),
    ({"workflow": "other"}, [2]),
    ({"tags": ("red",)}, [1, 3]),
    ({"tags": ("red", "big")}, [3]),
    ({"query": "key-1"}, [1]),
    ({"ids": (0, 2)}, [0, 2]),
    ({"ids": (0, 2), "workflow": "other"}, [2]),
    ({"since_ms": 1}, [0, 1, 2, 3]),
    ({"until_ms": 1}, []),
]


@pytest.mark.parametrize(("wanted", "expected"), FILTERS)
async def test_the_filter_is_that_of_lists_and_a_dry_run_only_counts(
    jobs: Jobs, hand: Hand, rows: LiveRows, wanted: dict[str, Any], expected: list[int]
) -> None:
    await rows.value("insert into rt.projects (tenant, slug) values ($1, 'elsewhere')", rows.tenant)
    await hand.declare({"name": "work"}, {"name": "other"})
    await hand.declare({"name": "work"}, project="elsewhere")
    runs = [
        await hand.start("work"),
        await hand.start("work", tags=("red",), idempotency_key="key-1"),
        await hand.start("other"),
        await hand.start("work", tags=("big", "red")),
    ]
    foreign = await hand.start("work", project="elsewhere", tags=("red",))
    if "ids" in wanted:
        wanted = wanted | {"ids": (*(runs[place] for place in wanted["ids"]), foreign, uuid4())}
    job, sample = await jobs.ask("cancel", dry_run=True, **wanted)
    assert (job.id, job.total, job.partial) == (None, len(expected), False)
    assert list(sample) == [runs[place] for place in reversed(expected)]
    assert await rows.value("select count(*) from rt.bulk_job") == 0
    assert set(await states(rows, runs)) == {Status.QUEUED}
    done = await jobs.done("cancel", **wanted)
    assert counts(done) == ("completed", len(expected), len(expected), 0, 0)
    cancelled = [place for place, run in enumerate(runs) if await rows.status(run) is Status.CANCELLED]
    assert cancelled == expected
    assert await rows.status(foreign) is Status.QUEUED


async def test_runs_that_cannot_be_done_are_told(
    jobs: Jobs, hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    await hand.declare({"name": "work"}, {"name": "ship", "triggers": [{"event": "paid"}]}, {"name": "paused"})
    pruned = (await hand.send("paid")).runs[0]
    paused = await hand.start("paused")
    fine = await hand.start("work")
    for run in (pruned, paused, fine):
        await hand.cancel(run)
    await rows.value("delete from rt.events")
    await Declarer(rows.database, lambda _: None).set_active(rows.tenant, hand.project, "paused", False)
    job = await jobs.done("replay")
    assert counts(job) == ("completed", 3, 1, 0, 2)
    assert {fault.run: fault.error.name for fault in job.faults} == {
        pruned: "EVENT_PRUNED",
        paused: "WORKFLOW_INACTIVE",
    }
    await rows.value("delete from rt.live where true")
    retried = await jobs.done("retry", workflow="ship")
    assert counts(retried) == ("completed", 1, 0, 0, 1)


async def test_of_many_faults_the_first_are_kept(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "paid"}]})
    for _ in range(MAX_FAULTS + 5):
        await hand.cancel((await hand.send("paid")).runs[0])
    await rows.value("delete from rt.events")
    job = await jobs.done("retry")
    assert (job.failed, len(job.faults)) == (MAX_FAULTS + 5, MAX_FAULTS)


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


async def test_the_same_job_is_not_done_twice_at_once(jobs: Jobs, hand: Hand) -> None:
    await cancelled_runs(hand, 2)
    first = await jobs.start("replay", tags=("a", "b"))
    with pytest.raises(Conflict) as refused:
        await jobs.start("replay", tags=("b", "a"))
    assert refused.value.reason == "ALREADY_EXISTS"
    await jobs.start("replay", tags=("a",))
    await jobs.work()
    assert (await jobs.start("replay", tags=("a", "b"))) != first


async def test_a_tenant_has_only_so_many_jobs_at_once(jobs: Jobs, hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_job, "MAX_ACTIVE", 2)
    await jobs.start("cancel", tags=("a",))
    await jobs.start("cancel", tags=("b",))
    with pytest.raises(Conflict) as refused:
        await jobs.start("cancel", tags=("c",))
    assert refused.value.reason == "TOO_MANY_JOBS"


async def test_what_is_counted_has_a_bound_but_what_is_done_has_none(
    jobs: Jobs, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_job, "MAX_COUNT", 4)
    monkeypatch.setattr(bulk_job, "_PAGE", 2)
    await cancelled_runs(hand, 7)
    job, sample = await jobs.ask("retry")
    assert (job.total, job.partial, len(sample)) == (4, True, 4)
    await jobs.work()
    assert job.id is not None
    assert counts(await jobs.get(job.id)) == ("completed", 4, 7, 0, 0)


async def test_what_cannot_be_asked_for_is_refused(jobs: Jobs, hand: Hand) -> None:
    with pytest.raises(NotFound):
        await jobs.ask("cancel", workflow="no-such")
    for action, wanted, path in (
        ("delete", {}, "action"),
        ("cancel", {"states": ["completed"]}, "filter.states"),
        ("retry", {"states": ["running"]}, "filter.states"),
        ("retry", {"tags": ("x" * 1_000,)}, "filter.tags[0]"),
        ("retry", {"query": ""}, "filter.query"),
        ("replay", {"ids": tuple(uuid4() for _ in range(1_001))}, "filter.run_ids"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await jobs.ask(action, dry_run=True, **wanted)
        assert [fault.path for fault in refused.value.errors] == [path]


async def test_a_job_of_a_project_that_is_gone_gives_up(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    await jobs.start("cancel")
    await rows.value("delete from rt.projects")
    await jobs.work()
    row = await rows.row("select state, error from rt.bulk_job")
    assert row is not None
    assert (row["state"], json.loads(row["error"])["name"]) == ("failed", "NOT_FOUND")


async def test_jobs_are_listed_newest_first_and_belong_to_their_tenant(jobs: Jobs, hand: Hand, rows: LiveRows) -> None:
    ids = [await jobs.start("cancel", tags=(tag,)) for tag in "abc"]
    first = await jobs.jobs.page(hand.tenant, hand.project, after=None, limit=2)
    second = await jobs.jobs.page(hand.tenant, hand.project, after=first[-1].id, limit=2)
    assert [job.id for job in (*first, *second)] == ids[::-1]
    other = await rows.value("select rt.create_tenant('other', '')")
    stranger = Caller(other, "s", frozenset())
    with pytest.raises(NotFound):
        await jobs.jobs.get(other, ids[0])
    with pytest.raises(NotFound):
        await jobs.jobs.stop(stranger, ids[0])
    assert (await jobs.get(ids[0])).state == "queued"
    actions = [row["action"] for row in await rows.rows("select action from rt.audit order by id")]
    assert actions[-3:] == ["runs.bulk_cancel"] * 3


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
        async with rows.database.connection() as watcher:
            while not await watcher.fetchval("select exists (select from pg_locks where not granted)"):
                await asyncio.sleep(0.005)
        none: list[Any] = [None]
        await connection.fetch("select * from rt.finish_v1($1, $2, $3, $4, false)", [ending], ["completed"], none, none)
    await working
    assert await rows.status(ending) is Status.COMPLETED
    assert counts(await jobs.get(id)) == ("completed", 2, 1, 1, 0)


async def test_taking_a_job_asks_an_index(rows: LiveRows) -> None:
    async with rows.database.transaction() as connection:
        await connection.execute("set local enable_seqscan = off")
        plan = await explained(connection, "select id from rt.bulk_job where ended_at is null order by turn_at limit 1")
    assert "bulk_job_turn" in plan


async def explained(connection: asyncpg.Connection, statement: str) -> str:
    return "\n".join(row[0] for row in await connection.fetch(f"explain {statement}"))
