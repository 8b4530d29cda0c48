"""A worker whose executor dies or stops: its run is kept for it, goes on where it comes to, or is an attempt."""

from __future__ import annotations

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.settings import LeaseSettings
from services.scheduler.partitions import EVERY_PARTITION
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.takeover import DEAF, DONE, Story, story, waiting
from tests.support.worker import reported, stream_executor, worker

__all__ = ["story"]


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
