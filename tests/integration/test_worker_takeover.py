"""A worker whose stream moves to another executor, or whose executor dies, goes on there: no step runs again (S2)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from services.core.runtime.settings import LeaseSettings
from services.scheduler.partitions import EVERY_PARTITION
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder, until
from tests.support.worker import HandWorker, StreamExecutor, reported, stream_executor, worker

DONE = {"op": "run_completed", "output": 7}
DEAF = LeaseSettings(ttl_s=600.0, heartbeat_s=200.0)
"""Of an executor that does not notice that it was declared dead."""


def failing(step_id: str, **fields: Any) -> dict[str, Any]:
    return {"op": "step_failed", "id": step_id, "name": step_id, "error": {"name": "Boom", "message": "no"}, **fields}


def waiting(step_id: str) -> dict[str, Any]:
    return {"op": "wait_for_event", "id": step_id, "name": step_id, "event": "paid"}


class Story:
    """A run that a worker executes at one executor, before it comes to another."""

    def __init__(self, hand: Hand, rows: LiveRows, first: StreamExecutor, one: HandWorker) -> None:
        self.hand = hand
        self.rows = rows
        self.first = first
        self.one = one
        self.run = UUID(int=0)
        self.key = pb.InvocationKey()

    async def begin(self) -> None:
        self.run = await self.hand.start("work")
        self.first.incarnation.hint([self.run])
        self.key = (await self.one.execute())[0].key

    async def commits(self, number: int, op: dict[str, Any]) -> None:
        await self.one.op(self.key, number, op)
        await self.one.ack()

    async def kill_first(self, park_ms: int = 10_000) -> None:
        """The executor is declared dead, and its runs are rescued."""
        await self.rows.value("update rt.owner set dead = true where id = $1", self.first.incarnation.owner.id)
        await self.rows.rows("select * from rt.rescue_v1(100, $1)", park_ms)

    async def moves_in_vain(self, *, noticed: bool) -> None:
        """Another executor takes the run over, and is gone before the worker hears of it."""
        other = await self.rows.owner()
        workflows = await self.rows.value("select array[wf] from rt.live where id = $1", self.run)
        session, epoch = UUID(self.one.session), self.key.epoch
        arguments = (other, session, self.rows.tenant, workflows, [self.run], [epoch])
        assert len(await self.rows.rows("select * from rt.take_over_v1($1, $2, $3, $4, $5, $6)", *arguments)) == 1
        attempts = f"t_{self.rows.tenant}.attempts"
        await self.rows.rows(f"update {attempts} set epoch = epoch + 1 where run = $1 returning 1", self.run)
        await self.rows.value("update rt.owner set dead = true where id = $1 returning 1", other)
        if noticed:
            await self.rows.rows("select * from rt.rescue_v1(100)")

    async def backoff_passes(self) -> None:
        """The backoff of the step that failed is over: nothing of it is open any more."""
        await self.rows.value("update rt.wait set due_at = rt.now() where run = $1 and kind = 'b'", self.run)
        await self.rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)
        assert await self.rows.value("select count(*) from rt.wait where run = $1", self.run) == 0

    async def attempts(self) -> int:
        count: int = await self.rows.value("select count(*) from rt.attempts where run = $1", self.run)
        return count

    @contextlib.asynccontextmanager
    async def elsewhere(self, *unacked: pb.WorkerMessage, **options: Any) -> AsyncIterator[HandWorker]:
        """The worker at another executor, where it has named its invocation."""
        session = options.pop("session", self.one.session)
        async with (
            stream_executor(self.hand.database, self.hand.tenant, **options) as second,
            worker(second, session=session) as back,
        ):
            item = pb.Resume.Item(key=self.key, unacked=[each.op for each in unacked])
            await back.say(pb.WorkerMessage(resume=pb.Resume(items=[item])))
            yield back

    async def resumed(self, back: HandWorker) -> pb.InvocationKey:
        (item,) = (await back.next("resume_ack")).items
        assert item.key == self.key
        assert item.HasField("resumed_as")
        new: pb.InvocationKey = item.resumed_as
        return new

    async def declined(self, back: HandWorker) -> None:
        (item,) = (await back.next("resume_ack")).items
        assert item.key == self.key
        assert not item.HasField("resumed_as")


@pytest.fixture
async def story(hand: Hand, rows: LiveRows) -> AsyncIterator[Story]:
    async with stream_executor(hand.database, hand.tenant, lease=DEAF) as first, worker(first) as one:
        told = Story(hand, rows, first, one)
        await told.begin()
        yield told


async def test_s2_what_a_living_executor_holds_goes_on_at_another_without_its_grace(story: Story) -> None:
    await story.commits(1, completed("a"))
    recorder = Recorder()
    async with story.elsewhere(reported(story.key, 2, completed("b")), publisher=recorder) as back:
        new = await story.resumed(back)
        assert (new.run_id, new.epoch, new.invocation) == (story.key.run_id, story.key.epoch + 1, 1)
        ack = await back.ack()
        assert (ack.key, ack.number, ack.outcome) == (new, 2, pb.ACK_OUTCOME_COMMITTED)
        assert recorder.cancelled == {story.first.incarnation.owner.id: [story.run]}
        await story.first.incarnation.abandon([story.run])
        await until(lambda: _true(not story.first.incarnation.held))
        await back.op(new, 3, DONE, last=True)
        assert (await back.ack()).yield_reason == pb.YIELD_REASON_ENDED
    assert await story.rows.status(story.run) is Status.COMPLETED
    assert await story.attempts() == 0


async def test_the_executor_before_commits_nothing_any_more(story: Story) -> None:
    async with story.elsewhere() as back:
        new = await story.resumed(back)
        await story.one.op(story.key, 1, completed("late"))
        await until(lambda: _true(not story.first.incarnation.held))  # fenced
        await back.op(new, 1, DONE, last=True)
        await back.ack()
    assert await story.rows.value("select count(*) from rt.steps where run = $1", story.run) == 0


async def test_ops_whose_acknowledgement_was_lost_are_answered_as_they_are_stored(story: Story) -> None:
    await story.commits(1, completed("a", 1))
    await story.commits(2, failing("b", non_retriable=True))
    await story.commits(3, failing("c"))  # is tried again after a backoff
    await story.commits(4, waiting("d"))
    lost = (completed("a", 1), failing("b", non_retriable=True), failing("c"), waiting("d"), completed("e", 5))
    async with story.elsewhere(*(reported(story.key, n, op) for n, op in enumerate(lost, start=1))) as back:
        await story.resumed(back)
        acks = {ack.number: ack for ack in [await back.ack() for _ in lost]}
    already, committed = pb.ACK_OUTCOME_ALREADY, pb.ACK_OUTCOME_COMMITTED
    assert [acks[n].outcome for n in range(1, 6)] == [already, already, already, committed, committed]
    assert acks[1].step == b'{"status":"completed","output":1}'
    assert b'"Boom"' in acks[2].step
    assert not acks[3].HasField("step")
    assert not acks[4].HasField("step")
    steps = await story.rows.rows("select sid from rt.steps where run = $1 order by seq", story.run)
    assert [row["sid"] for row in steps] == ["a", "b", "e"]
    waits = await story.rows.rows(
        "select sid, kind::text from rt.wait where run = $1 and sid is not null order by sid", story.run
    )
    assert [tuple(row) for row in waits] == [("c", "b"), ("d", "e")]
    assert await story.attempts() == 2, "those of b and c, once"


async def test_a_failed_attempt_whose_acknowledgement_was_lost_counts_once_when_its_backoff_is_over(
    story: Story,
) -> None:
    await story.commits(1, failing("a", retry_after_ms=60_000))
    await story.backoff_passes()
    async with story.elsewhere(reported(story.key, 1, failing("a", retry_after_ms=60_000))) as back:
        new = await story.resumed(back)
        assert (await back.ack()).outcome == pb.ACK_OUTCOME_ALREADY
        await back.end(new)
        again, request = await back.execute()  # its next attempt waits for nothing
        assert (request["run"]["attempt"], list(again.open_steps)) == (1, [])
        assert await story.attempts() == 1
        await back.op(again.key, 1, failing("a", retry_after_ms=60_000))
        assert (await back.ack()).outcome == pb.ACK_OUTCOME_COMMITTED, "the same number, of another invocation"
        assert await story.attempts() == 2


async def test_a_failed_attempt_is_known_at_the_third_executor_too(story: Story) -> None:
    op = failing("a", retry_after_ms=60_000)
    await story.commits(1, op)
    await story.backoff_passes()
    async with story.elsewhere() as back:  # which says nothing of the op yet, as its answer may still come
        story.key = await story.resumed(back)
        async with story.elsewhere(reported(story.key, 1, op)) as third:
            await story.resumed(third)
            assert (await third.ack()).outcome == pb.ACK_OUTCOME_ALREADY
    assert await story.attempts() == 1


@pytest.mark.parametrize("noticed", [False, True])
async def test_a_worker_that_has_not_heard_of_the_executor_before_goes_on_by_the_key_it_knows(
    story: Story, noticed: bool
) -> None:
    op = failing("a", retry_after_ms=60_000)
    await story.commits(1, op)
    await story.backoff_passes()
    await story.moves_in_vain(noticed=noticed)
    async with story.elsewhere(reported(story.key, 1, op), reported(story.key, 2, completed("b"))) as back:
        new = await story.resumed(back)
        assert new.epoch == story.key.epoch + (3 if noticed else 2)
        assert [(await back.ack()).outcome for _ in range(2)] == [pb.ACK_OUTCOME_ALREADY, pb.ACK_OUTCOME_COMMITTED]
        await back.op(new, 3, DONE, last=True)
        await back.ack()
    assert await story.rows.status(story.run) is Status.COMPLETED
    assert await story.attempts() == 1


async def test_what_a_living_executor_has_taken_over_is_its_own(story: Story) -> None:
    async with story.elsewhere() as back:
        await story.resumed(back)
        async with story.elsewhere() as third:  # an older stream, say, which was heard late
            await story.declined(third)


async def test_an_attempt_of_an_invocation_before_is_not_taken_for_this_ones(hand: Hand, rows: LiveRows) -> None:
    op = failing("a", retry_after_ms=60_000)
    async with stream_executor(hand.database, hand.tenant, lease=DEAF) as first, worker(first) as one:
        story = Story(hand, rows, first, one)
        await story.begin()
        await story.commits(1, op)
        await one.say(reported(story.key, 2, completed("b")), pb.WorkerMessage(end=pb.InvocationEnd(key=story.key)))
        await one.ack()
        await until(lambda: _true(not first.incarnation.held))
        await story.backoff_passes()
        first.incarnation.hint([story.run])
        story.key = (await one.execute())[0].key
        async with story.elsewhere(reported(story.key, 1, op)) as back:
            await story.resumed(back)
            assert (await back.ack()).outcome == pb.ACK_OUTCOME_COMMITTED
    assert await story.attempts() == 2


async def test_c18_a_dead_executors_run_is_kept_for_its_worker_and_goes_on_without_an_attempt(story: Story) -> None:
    await story.commits(1, completed("a"))
    await story.kill_first()
    assert await story.rows.status(story.run) is Status.PARKED
    async with story.elsewhere(reported(story.key, 2, completed("b"))) as back:
        new = await story.resumed(back)
        assert new.epoch == story.key.epoch + 2
        assert (await back.ack()).outcome == pb.ACK_OUTCOME_COMMITTED
        assert await story.rows.value("select count(*) from rt.wait where run = $1", story.run) == 0
        await back.op(new, 3, DONE, last=True)
        await back.ack()
    assert await story.rows.status(story.run) is Status.COMPLETED
    assert await story.attempts() == 0


async def test_a_worker_that_comes_before_anybody_has_noticed_the_death_goes_on(story: Story) -> None:
    await story.rows.value("delete from rt.owner where id = $1", story.first.incarnation.owner.id)
    async with story.elsewhere() as back:
        new = await story.resumed(back)
        assert await story.rows.rows("select * from rt.rescue_v1(100)") == []
        await back.op(new, 1, DONE, last=True)
        await back.ack()
    assert await story.attempts() == 0


async def test_a_worker_that_does_not_come_back_is_an_attempt_when_its_time_is_over(story: Story) -> None:
    await story.kill_first(park_ms=0)
    await story.rows.owner()  # an executor that it could have come to
    await story.rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)
    assert await story.rows.status(story.run) is Status.QUEUED
    error = await story.rows.value("select error from rt.attempts where run = $1", story.run)
    assert error.startswith('{"name":"WorkerLost"')
    async with story.elsewhere() as back:
        await story.declined(back)


async def test_the_last_attempt_that_is_lost_ends_the_run(story: Story) -> None:
    await story.rows.value("update rt.live set max_att = 1 where id = $1", story.run)
    await story.kill_first(park_ms=0)
    await story.rows.owner()
    (fired,) = await story.rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)
    assert (fired["lost"], fired["ended"]) == ([story.run], [story.run])
    assert await story.rows.status(story.run) is Status.FAILED


async def test_what_comes_while_a_run_is_parked_is_delivered_where_it_goes_on(story: Story) -> None:
    await story.commits(1, waiting("pay"))
    await story.kill_first()
    await story.hand.send("paid", '{"sum":1}')
    assert await story.rows.status(story.run) is Status.PARKED
    async with story.elsewhere() as back:
        new = await story.resumed(back)
        delivery = await back.next("delivery")
        assert (delivery.key, delivery.step_id) == (new, "pay")
        await back.end(new)  # as a worker that waited for nothing else
        execute, request = await back.execute()
        assert execute.key.invocation == 2
        assert request["steps"]["pay"]["status"] == "completed"
    assert await story.attempts() == 0


async def test_an_executor_that_stops_keeps_what_workers_execute_for_them(hand: Hand, rows: LiveRows) -> None:
    await rows.owner()  # an executor that it could come to
    async with stream_executor(hand.database, hand.tenant) as first, worker(first) as one:
        story = Story(hand, rows, first, one)
        await story.begin()
    assert await rows.status(story.run) is Status.PARKED
    assert one.heard("cancel") == 0, "who is told so drops what it has"
    async with story.elsewhere() as back:
        await story.resumed(back)
    assert await story.attempts() == 0
    # The next one has stopped too, and this time the worker does not come: its body may have run, and will run again.
    assert await rows.status(story.run) is Status.PARKED
    await rows.value("update rt.wait set due_at = rt.now() where run = $1", story.run)
    await rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)
    assert await rows.status(story.run) is Status.QUEUED
    assert await story.attempts() == 1


async def test_nobody_is_late_who_had_no_executor_to_come_to(story: Story) -> None:
    await story.kill_first(park_ms=10_000)
    await story.rows.value(
        "update rt.wait set created_at = rt.now() - interval '11 s', due_at = rt.now() - interval '1 s' where run = $1",
        story.run,
    )
    first, second = await story.rows.owner(), await story.rows.owner(dead=True)
    await story.rows.owner(kind="scheduler")

    async def lives(owner: int, came_s: float, went_s: float) -> None:
        times = "boot_at = rt.now() - $2::float8 * interval '1 s', beat_at = rt.now() - $3::float8 * interval '1 s'"
        await story.rows.value(f"update rt.owner set {times} where id = $1", owner, came_s, went_s)
        await story.rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)

    await lives(second, 60.0, 8.0)  # of these, three seconds count
    for came_s, status in ((6.5, Status.PARKED), (7.5, Status.QUEUED)):
        await lives(first, came_s, 0.0)
        assert await story.rows.status(story.run) is status


async def test_an_executor_that_was_declared_dead_and_does_not_know_it_gives_nothing_up(story: Story) -> None:
    async with stream_executor(story.hand.database, story.hand.tenant, lease=DEAF) as second:
        await story.rows.value("update rt.owner set dead = true where id = $1", second.incarnation.owner.id)
        async with worker(second, session=story.one.session, resuming=True) as back:
            await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=story.key)])))
            assert (await back.next("goodbye")).reason == "UNAVAILABLE"
            assert back.heard("resume_ack") == 0, "who is told so drops what it has"
    async with story.elsewhere() as third:
        await story.resumed(third)
    assert await story.attempts() == 0


async def test_a_run_that_no_worker_executes_is_queued_at_once(story: Story) -> None:
    await story.rows.value("update rt.live set affinity = null where id = $1", story.run)
    await story.kill_first()
    assert await story.rows.status(story.run) is Status.QUEUED


async def test_nobody_else_takes_a_run_over(story: Story) -> None:
    async with story.elsewhere(session=str(uuid.uuid4())) as thief:
        await story.declined(thief)
    key, story.key = story.key, pb.InvocationKey(run_id=story.key.run_id, epoch=story.key.epoch + 1, invocation=1)
    async with story.elsewhere() as early:
        await story.declined(early)
    story.key = key
    await story.hand.cancel(story.run)
    async with story.elsewhere() as late:
        await story.declined(late)


async def test_a_worker_that_lost_the_answer_names_the_old_key_again_and_goes_on(story: Story) -> None:
    async with stream_executor(story.hand.database, story.hand.tenant) as second:
        item = pb.Resume.Item(key=story.key)
        async with worker(second, session=story.one.session) as back:
            await back.say(pb.WorkerMessage(resume=pb.Resume(items=[item])))
            new = await story.resumed(back)
        async with worker(second, session=story.one.session) as again:
            await again.say(pb.WorkerMessage(resume=pb.Resume(items=[item])))
            assert await story.resumed(again) == new
            await again.op(new, 1, DONE, last=True)
            await again.ack()
    assert await story.attempts() == 0


async def test_a_run_that_was_brought_along_and_is_known_no_more_is_an_attempt(story: Story) -> None:
    """It had begun where it came from, though nothing of it was said here."""
    async with stream_executor(story.hand.database, story.hand.tenant) as second:
        async with worker(second, session=story.one.session) as back:
            await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=story.key)])))
            await story.resumed(back)
        async with worker(second, session=story.one.session) as again:
            await again.say(pb.WorkerMessage(resume=pb.Resume()))
            await until(lambda: _true(not second.incarnation.held))
    error = await story.rows.value("select error from rt.attempts where run = $1", story.run)
    assert error.startswith('{"name":"WorkerDisconnected"')


async def test_an_owner_that_was_declared_dead_sends_its_workers_for_a_new_start(hand: Hand, rows: LiveRows) -> None:
    lease = LeaseSettings(ttl_s=600.0, heartbeat_s=0.05)
    async with stream_executor(hand.database, hand.tenant, lease=lease) as first, worker(first) as one:
        story = Story(hand, rows, first, one)
        await story.begin()
        await story.kill_first()
        assert (await one.next("goodbye")).reason == "UNAVAILABLE"
        assert one.heard("cancel") == 0
        async with story.elsewhere() as back:
            await story.resumed(back)
        assert await story.attempts() == 0


async def test_runs_of_many_workers_go_on_at_another_executor_all_at_once(hand: Hand, rows: LiveRows) -> None:
    async with stream_executor(hand.database, hand.tenant, slots=300, lease=DEAF) as first:
        async with worker(first, credits=300) as one:
            runs = [await hand.start("work") for _ in range(300)]
            first.incarnation.hint(runs)
            keys = [(await one.execute())[0].key for _ in runs]
        await rows.value("update rt.owner set dead = true where id = $1", first.incarnation.owner.id)
        while await rows.rows("select * from rt.rescue_v1(100)"):
            pass
        async with (
            stream_executor(hand.database, hand.tenant, slots=300) as second,
            worker(second, session=one.session) as back,
        ):
            items = [pb.Resume.Item(key=key, unacked=[reported(key, 1, DONE, last=True).op]) for key in keys]
            await back.say(pb.WorkerMessage(resume=pb.Resume(items=items)))
            acks = [await back.ack() for _ in runs]
            assert {ack.key.run_id for ack in acks} == {ulid_text(run) for run in runs}
    assert await rows.value("select count(*) from rt.ends where status = 'completed'") == 300
    assert await rows.value("select count(*) from rt.attempts") == 0


async def _true(holds: bool) -> bool:
    await asyncio.sleep(0)
    return holds
