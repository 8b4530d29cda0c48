"""Bulk cancel, retry and replay: what they do to each run, and what may be asked for (engine section 3)."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import uuid4

import pytest

from services.core.domain.bulk_job import MAX_FAULTS
from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, NotFound
from services.core.domain.op import Invoke, RunCompleted, Sleep, StepCompleted
from services.core.domain.run import Status
from services.core.engine import bulk_job, bulk_work
from services.core.engine.declare import Declarer
from services.core.engine.hints import Hints
from services.scheduler.duties.marks import Marks
from tests.support.bulk import TRACE, Jobs, cancelled_runs, counts, jobs, states
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder

__all__ = ["jobs"]

A_STEP = StepCompleted(id="a", name="a", output="1")
THE_END = RunCompleted(output="2")


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
