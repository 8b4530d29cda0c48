"""A worker whose stream moves to another executor goes on there: no step runs again (S2)."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder
from tests.support.takeover import DEAF, DONE, Story, failing, story, waiting
from tests.support.waiting import until
from tests.support.worker import reported, stream_executor, worker

__all__ = ["story"]


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
