"""Timeouts of runs, and the marks that ends leave: parents resume, children are cancelled, whoever died in between."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.store.commit_item import WaitRow
from services.scheduler.duties.marks import Marks
from services.scheduler.duties.send_events import MIN_AGE_MS, SendEvents
from services.scheduler.duties.timeout import Timeout
from tests.support.live_rows import DAY_MS, LiveRows, Recorder
from tests.support.waiting import until


@pytest.fixture
def marks(rows: LiveRows, recorder: Recorder) -> Marks:
    return Marks(rows.database, Hints(recorder))


@pytest.fixture
def timeout(rows: LiveRows, recorder: Recorder, marks: Marks) -> Timeout:
    return Timeout(rows.database, Hints(recorder), marks.nudge)


class Family:
    """A parent that waits for a child which an owner holds."""

    def __init__(self, parent: uuid.UUID, child: uuid.UUID, owner: int) -> None:
        self.parent = parent
        self.child = child
        self.owner = owner


async def family(rows: LiveRows, **parent: object) -> Family:
    owner = await rows.owner()
    mother = await rows.start_one(**parent)
    child = await rows.held(owner, parent=mother)
    await rows.rest("w", [rows.wait("c", child=child)], run=mother)
    return Family(mother, child, owner)


async def age_marks(rows: LiveRows) -> None:
    await rows.value("update rt.mark set created_at = created_at - interval '2 s'")


async def mark_count(rows: LiveRows) -> int:
    count: int = await rows.value("select count(*) from rt.mark")
    return count


async def child_step(rows: LiveRows, parent: uuid.UUID) -> tuple[str, str | None, str | None]:
    row = await rows.row("select status::text, output, error from rt.steps where run = $1 and kind = 'i'", parent)
    assert row is not None
    return row["status"], row["output"], row["error"]


async def test_an_ended_child_resumes_its_parent(rows: LiveRows, marks: Marks, recorder: Recorder) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "completed", output='{"paid": true}')
    await age_marks(rows)
    assert await marks.run_once() == {"resumed": 1, "cancelled": 0}
    assert await rows.status(kin.parent) is Status.QUEUED
    assert await child_step(rows, kin.parent) == ("c", '{"paid": true}', None)
    assert recorder.ready == [kin.parent]
    assert await mark_count(rows) == 0


async def test_a_failed_child_fails_the_step_of_its_parent(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "failed", error='{"name": "Boom", "message": "it broke"}')
    await age_marks(rows)
    await marks.run_once()
    status, output, error = await child_step(rows, kin.parent)
    assert (status, output) == ("f", None)
    assert error is not None
    fault = json.loads(error)
    assert fault["name"] == "InvokeError"
    assert "it broke" in fault["message"]


async def test_a_child_without_output_gives_null(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "completed", output=None)
    await age_marks(rows)
    await marks.run_once()
    assert await child_step(rows, kin.parent) == ("c", "null", None)


async def test_a_held_parent_gets_mail_and_no_hint(rows: LiveRows, marks: Marks, recorder: Recorder) -> None:
    kin = await family(rows)
    await rows.value("update rt.live set st = 'q', qk = rt.now() where id = $1", kin.parent)
    holder = await rows.owner()
    await rows.claim(holder, [kin.parent])
    await rows.end(kin.owner, kin.child, "completed")
    await age_marks(rows)
    assert await marks.run_once() == {"resumed": 1, "cancelled": 0}
    live = await rows.live(kin.parent)
    assert live is not None
    assert (live["owner"], live["mail"]) == (holder, 1)
    assert recorder.ready == []


async def test_young_marks_are_left_to_whoever_wrote_them_unless_nudged(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "completed")
    assert await marks.run_once() == {"resumed": 0, "cancelled": 0}
    assert await mark_count(rows) == 1
    marks.nudge()
    await asyncio.wait_for(marks.idle(), 0.5)
    assert await marks.run_once() == {"resumed": 1, "cancelled": 0}


async def test_a_mark_whose_parent_is_gone_goes_without_effect(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "completed")
    await rows.value("select rt.finish_v1($1, '{cancelled}', '{null}', '{null}', true)", [kin.parent])
    await age_marks(rows)
    assert await mark_count(rows) == 1
    assert await marks.run_once() == {"resumed": 0, "cancelled": 0}
    assert await mark_count(rows) == 0


async def test_marks_without_effect_do_not_end_the_pass(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.value(
        "insert into rt.mark (tenant, target, kind, body) "
        "select $1, gen_random_uuid(), 'child_end', gen_random_uuid()::text from generate_series(1, 1200)",
        rows.tenant,
    )
    await rows.end(kin.owner, kin.child, "completed")
    await age_marks(rows)
    assert await marks.run_once() == {"resumed": 1, "cancelled": 0}
    assert await mark_count(rows) == 0


async def test_a_mark_whose_run_is_locked_waits(rows: LiveRows, marks: Marks) -> None:
    kin = await family(rows)
    await rows.end(kin.owner, kin.child, "completed")
    await age_marks(rows)
    async with rows.locked(kin.parent):
        assert await marks.run_once() == {"resumed": 0, "cancelled": 0}
        assert await mark_count(rows) == 1
    assert await marks.run_once() == {"resumed": 1, "cancelled": 0}


async def test_two_schedulers_apply_each_mark_once(rows: LiveRows, marks: Marks, recorder: Recorder) -> None:
    kin = [await family(rows) for _ in range(30)]
    for one in kin:
        await rows.end(one.owner, one.child, "completed")
    await age_marks(rows)
    other = Marks(rows.database, Hints(recorder))
    counts = await asyncio.gather(marks.run_once(), other.run_once())
    assert sum(count["resumed"] for count in counts) == 30
    assert sorted(recorder.ready) == sorted(one.parent for one in kin)
    assert await rows.value("select count(*) from rt.live where mail = 1") == 30


async def test_kinds_of_another_release_are_left_alone(rows: LiveRows, marks: Marks) -> None:
    await rows.value(
        "insert into rt.mark (tenant, kind, body) values ($1, 'fan_out', 'x'), ($1, 'send_event', '{}')", rows.tenant
    )
    await age_marks(rows)
    assert await marks.run_once() == {"resumed": 0, "cancelled": 0}
    assert await mark_count(rows) == 2


async def test_an_overdue_run_times_out_and_its_holder_is_told(
    rows: LiveRows, timeout: Timeout, recorder: Recorder
) -> None:
    owner = await rows.owner()
    over, fine = await rows.held(owner, timeout_ms=0), await rows.held(owner, timeout_ms=DAY_MS)
    assert await timeout.run_once() == {"timed_out": 1}
    assert await rows.status(over) is Status.TIMED_OUT
    assert await rows.status(fine) is Status.RUNNING
    assert recorder.cancelled == {owner: [over]}
    end = await rows.row("select error, epoch from rt.ends where run = $1", over)
    assert end is not None
    assert json.loads(end["error"])["name"] == "RunTimeout"
    assert (await rows.commit(owner, over, epoch=1, rev=0, mail=0, st="s"))["result"] == "g"


async def test_a_run_that_rests_times_out_with_all_it_waits_for(rows: LiveRows, timeout: Timeout) -> None:
    waits: list[WaitRow] = [rows.wait("s", delay_ms=DAY_MS), rows.wait("e", delay_ms=DAY_MS), rows.wait("x")]
    run = await rows.rest("w", waits)
    assert await timeout.run_once() == {"timed_out": 0}
    await rows.value("update rt.live set deadline = rt.now() where id = $1", run)
    assert await timeout.run_once() == {"timed_out": 1}
    assert await rows.value("select count(*) from rt.wait") == 0
    steps = await rows.rows("select sid, status::text from rt.steps where run = $1 order by sid", run)
    assert [(step["sid"], step["status"]) for step in steps] == [("e", "x"), ("s", "x")]


async def test_more_than_a_batch_times_out_in_one_go(rows: LiveRows, timeout: Timeout) -> None:
    await rows.start(1_100, timeout_ms=0)
    assert await timeout.run_once() == {"timed_out": 1_100}
    assert await rows.value("select count(*) from rt.ends where status = 'timed_out'") == 1_100
    assert await rows.value("select count(*) from rt.live") == 0


async def test_a_timeout_cancels_the_descendants_at_once(
    rows: LiveRows, timeout: Timeout, marks: Marks, recorder: Recorder
) -> None:
    owner = await rows.owner()
    top = await rows.start_one()
    middle = await rows.start_one(parent=top)
    leaf = await rows.held(owner, parent=middle)
    stranger = await rows.start_one()
    await rows.value("update rt.live set deadline = rt.now() where id = $1", top)
    await timeout.run_once()
    await asyncio.wait_for(marks.idle(), 0.5)
    assert await marks.run_once() == {"resumed": 0, "cancelled": 2}
    assert await rows.status(top) is Status.TIMED_OUT
    assert [await rows.status(run) for run in (middle, leaf)] == [Status.CANCELLED, Status.CANCELLED]
    assert await rows.status(stranger) is Status.QUEUED
    assert recorder.cancelled == {owner: [leaf]}
    marks.nudge()
    await marks.run_once()
    assert await mark_count(rows) == 0


async def test_a_completed_parent_leaves_its_children_running(rows: LiveRows, marks: Marks) -> None:
    owner = await rows.owner()
    parent = await rows.held(owner)
    child = await rows.start_one(parent=parent)
    await rows.end(owner, parent, "completed")
    await age_marks(rows)
    await marks.run_once()
    assert await rows.status(child) is Status.QUEUED


async def test_sent_events_are_swept_batch_after_batch() -> None:
    asked: list[int] = []
    batches = [100, 100, 30, 0]

    async def sweep(min_age_ms: int) -> int:
        asked.append(min_age_ms)
        return batches.pop(0)

    assert await SendEvents(sweep).run_once() == {"sent": 230}
    assert asked == [MIN_AGE_MS] * 4


async def test_nothing_times_out_early(rows: LiveRows, timeout: Timeout) -> None:
    run = await rows.start_one(timeout_ms=400)
    deadline = (await rows.row("select deadline from rt.live where id = $1", run) or {})["deadline"]

    async def ended() -> bool:
        await timeout.run_once()
        return await rows.status(run) is Status.TIMED_OUT

    await until(ended)
    assert await rows.value("select ended from rt.ends where run = $1", run) >= deadline


async def test_a_mark_of_a_child_that_goes_on_does_not_stand_in_the_way(rows: LiveRows) -> None:
    """Written while the child's row was locked, it has nothing to do: the child's end will see who waits."""
    parent, child = await rows.start(2)
    await rows.value(
        "insert into rt.wait (id, run, tenant, kind, sid, child) "
        "values (gen_random_uuid(), $1, $2, 'c', 's', $3) returning 1",
        parent,
        rows.tenant,
        child,
    )
    mark = "insert into rt.mark (tenant, target, kind, body) values ($1, $2, 'child_end', $3) returning id"
    await rows.value(mark, rows.tenant, parent, str(child))
    async with rows.locked(child):
        await rows.rows("select * from rt.apply_marks_v1(0, 500)")
        assert await rows.value("select count(*) from rt.mark") == 1, "its end may be just now"
    await rows.rows("select * from rt.apply_marks_v1(0, 500)")
    assert await rows.value("select count(*) from rt.mark") == 0
    await rows.rows(
        "select * from rt.finish_v1(array[$1::uuid], array['completed'], array['7'], array[null], true)", child
    )
    await rows.rows("select * from rt.apply_marks_v1(0, 500)")
    assert await rows.value("select output from rt.steps where run = $1 and sid = 's'", parent) == "7"
