"""The worker stream where it breaks, and where workers and executors leave: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import uuid

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from services.core.runtime.settings import LeaseSettings
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until
from tests.support.worker import reported, stranger, stream_executor, worker
from tests.support.worker_talk import DONE, begin, comes_to


class TestBrokenStreams:
    async def test_s2_a_worker_that_comes_back_goes_on_and_nothing_runs_again(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
                await one.op(key, 1, completed("a"))
                await one.ack()
                one.cut()
                await asyncio.wait_for(one.ended.wait(), 10)
            async with worker(executor, session=one.session) as back:
                op = reported(key, 2, completed("b")).op
                await back.say(
                    pb.WorkerMessage(
                        resume=pb.Resume(items=[pb.Resume.Item(key=key, unacked=[op])]),
                    )
                )
                (item,) = (await back.next("resume_ack")).items
                assert item.resumed_as == key
                assert (await back.ack()).number == 2
                await back.op(key, 3, DONE, last=True)
                await back.ack()
                assert back.heard("execute") == 0
            assert await rows.status(run) is Status.COMPLETED
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_an_op_whose_acknowledgement_was_lost_is_acknowledged_at_the_resumption(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
                op = reported(key, 1, completed("a"))
                await one.say(op)
                await one.ack()
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key, unacked=[op.op])])))
                assert (await back.ack()).outcome == pb.ACK_OUTCOME_ALREADY
            assert await rows.value("select count(*) from rt.steps where run = $1", run) == 1

    async def test_an_invocation_that_never_arrived_is_sent_again(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, key = await begin(hand, executor, one)
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume()))
                execute, _ = await back.execute()
                assert execute.key.run_id == key.run_id
                assert execute.key.invocation == key.invocation + 1
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_s2_what_has_ended_meanwhile_is_not_sent_again(self, hand: Hand, rows: LiveRows) -> None:
        """As where another executor told the worker to drop it, and this one has not heard of the end."""
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                run, _ = await begin(hand, executor, one)
            await hand.cancel(run)
            assert list(executor.incarnation.held) == [run]
            async with worker(executor, session=one.session) as back:
                await back.say(pb.WorkerMessage(resume=pb.Resume()))
                await until(lambda: _true(not executor.incarnation.held))
                assert back.heard("execute") == 0
                await begin(hand, executor, back)

    async def test_an_end_that_nobody_told_of_is_found_by_the_heartbeat(self, hand: Hand, rows: LiveRows) -> None:
        lease = LeaseSettings(ttl_s=30.0, heartbeat_s=0.1)
        async with stream_executor(hand.database, hand.tenant, lease=lease) as executor, worker(executor) as one:
            (run, key), (other, _) = [await begin(hand, executor, one) for _ in range(2)]
            await hand.cancel(run)
            assert (await one.next("cancel")).key == key
            assert list(executor.incarnation.held) == [other]
            assert await rows.status(other) is Status.RUNNING

    async def test_a_worker_that_saw_no_answer_to_its_first_hello_is_given_its_run_again(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        run = await hand.start("work")
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor) as one:
                executor.incarnation.hint([run])
                lost, _ = await one.execute()
            async with worker(executor, session=one.session, resuming=False) as again:
                execute, _ = await again.execute()
                assert execute.key.invocation == lost.key.invocation + 1
                await again.op(execute.key, 1, DONE, last=True)
                await again.ack()
        assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0

    async def test_what_an_unknown_executor_held_is_not_resumed(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            key = pb.InvocationKey(run_id=ulid_text(uuid.uuid4()), epoch=3, invocation=1)
            await one.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key)])))
            (item,) = (await one.next("resume_ack")).items
            assert item.key == key
            assert not item.HasField("resumed_as")

    async def test_a_worker_that_does_not_come_back_is_a_failed_attempt(self, hand: Hand, rows: LiveRows) -> None:
        async with stream_executor(hand.database, hand.tenant, resume_grace_s=0.2) as executor:
            async with worker(executor) as one:
                run, _ = await begin(hand, executor, one)
            await comes_to(rows, run, Status.DELAYED)
            error = await rows.value("select error from rt.attempts where run = $1", run)
            assert error.startswith('{"name":"WorkerDisconnected"')
            assert not list(executor.sessions)

    async def test_s6_a_step_that_hangs_is_cancelled_and_counts(self, hand: Hand, rows: LiveRows) -> None:
        async with (
            stream_executor(hand.database, hand.tenant, request_timeout_s=0.3) as executor,
            worker(executor) as one,
        ):
            run, _ = await begin(hand, executor, one)
            await one.next("cancel")
            await comes_to(rows, run, Status.DELAYED)
            assert "FunctionTimeout" in await rows.value("select error from rt.attempts where run = $1", run)


class TestLeaving:
    async def test_s7_a_draining_executor_asks_for_the_runs_and_gives_them_back_without_an_attempt(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            run, key = await begin(hand, executor, one)
            executor.sessions.announce_drain()
            await one.next("drain")
            draining = asyncio.create_task(executor.incarnation.drain())
            await one.op(key, 1, completed("a"))
            assert (await one.ack()).yield_reason == pb.YIELD_REASON_DRAIN
            await one.end(key)
            await asyncio.wait_for(draining, 10)
            assert await rows.status(run) is Status.QUEUED
            assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0
            async with stranger(executor) as late:
                assert (await late.next("goodbye")).reason == "SHUTDOWN"

    async def test_a_draining_worker_is_given_nothing_more(self, hand: Hand) -> None:
        async with (
            stream_executor(hand.database, hand.tenant) as executor,
            worker(executor) as leaving,
            worker(executor, credits=1) as stays,
        ):
            await leaving.say(pb.WorkerMessage(drain=pb.Drain()))
            session = next(each for each in executor.sessions if each.session == leaving.session)
            await until(lambda: _true(session.draining))
            await begin(hand, executor, stays)
            assert leaving.heard("execute") == 0

    async def test_messages_of_an_unknown_kind_are_ignored(self, hand: Hand) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
            await one.say(pb.WorkerMessage.FromString(b"\xfa\x01\x02\x08\x01"), pb.WorkerMessage())
            await begin(hand, executor, one)


async def _true(holds: bool) -> bool:
    return holds


class TestBetweenStreams:
    async def test_a_worker_that_resumes_is_given_nothing_before_it_has_said_what_it_brings_along(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        async with stream_executor(hand.database, hand.tenant) as executor:
            async with worker(executor, credits=2) as one:
                _, key = await begin(hand, executor, one)
            waiting = [await hand.start("work") for _ in range(3)]
            async with worker(executor, session=one.session, credits=2, resuming=True) as back:
                executor.incarnation.hint(waiting)
                (session,) = executor.sessions
                assert session.credits == 0
                assert executor.sessions.connected(session.tenant, session.project) == 1
                assert executor.sessions.connected(session.tenant, session.project + 1) == 0
                await back.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key)])))
                (item,) = (await back.next("resume_ack")).items
                assert item.resumed_as == key
                executor.incarnation.hint(waiting)
                await back.execute()
                assert session.credits == 0, "one goes on, one is new: both slots are taken"
                assert back.heard("execute") == 0
                assert back.heard("cancel") == 0
