"""What a worker with a valid key may say and should not: refused by name, bounded, and nobody else's harm."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from services.executor.worker_stream.invocation import weight
from services.executor.worker_stream.outbox import Outbox
from services.executor.worker_stream.session import MAX_CREDITS, MAX_INBOX_BYTES, WorkerSession
from services.executor.worker_stream.sessions import MAX_SESSIONS, TooManyWorkers, WorkerSessions
from tests.support.engine import HandClock
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until
from tests.support.worker import HandWorker, StreamExecutor, reported, stranger, stream_executor, worker

MOST = 2**31 - 1


async def begin(hand: Hand, executor: StreamExecutor, one: HandWorker) -> tuple[uuid.UUID, pb.InvocationKey]:
    run = await hand.start("work")
    executor.incarnation.hint([run])
    return run, (await one.execute())[0].key


def big(size: int) -> pb.EngineMessage:
    """A message that takes this many bytes and a few."""
    return pb.EngineMessage(execute=pb.Execute(request_chunk=bytes(size)))


def sessions() -> WorkerSessions:
    return WorkerSessions(HandClock(), request_timeout_s=1, resume_grace_s=1)


def session() -> WorkerSession:
    return sessions().meet(str(uuid.uuid4()), tenant=1, project=1, node="test")


@pytest.mark.parametrize("number", [0, -1, 2, 7, MOST, -MOST - 1])
async def test_ops_that_are_not_numbered_in_order_end_the_invocation_by_name(
    hand: Hand, rows: LiveRows, number: int
) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        run, key = await begin(hand, executor, one)
        await one.op(key, number, completed("a"))
        await one.next("cancel")
        assert await rows.status(run) is Status.DELAYED
        error = await rows.value("select error from rt.attempts where run = $1", run)
        assert "ProtocolError" in error
        assert f"op {number} came after op 0" in error
        assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0


async def test_what_is_said_after_the_last_op_is_not_taken(hand: Hand, rows: LiveRows) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        run, key = await begin(hand, executor, one)
        done = reported(key, 1, {"op": "run_completed", "output": 1}, last=True)
        await one.say(done, reported(key, 2, completed("late")), reported(key, 3, completed("later")))
        assert (await one.ack()).number == 1
        assert await rows.status(run) is Status.COMPLETED
        assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0


async def test_brings_of_too_much_or_one_after_another_end_the_stream(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor:
        async with worker(executor) as one:
            keys = [pb.InvocationKey(run_id="x", epoch=n) for n in range(MAX_CREDITS + 1)]
            await one.say(pb.WorkerMessage(bring=pb.Bring(unknown=keys)))
            assert "a Bring of more than" in (await one.next("goodbye")).message
        async with worker(executor) as one:
            item = pb.Resume.Item(key=pb.InvocationKey(run_id=ulid_text(uuid.uuid4()), epoch=1, invocation=1))
            await one.say(*[pb.WorkerMessage(bring=pb.Bring(items=[item]))] * 100)
            assert "one Bring after another" in (await one.next("goodbye")).message


async def test_a_resume_of_too_much_or_a_second_one_ends_the_stream(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor:
        async with worker(executor) as one:
            keys = (pb.InvocationKey(run_id="x", epoch=n) for n in range(MAX_CREDITS + 1))
            await one.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key) for key in keys])))
            goodbye = await one.next("goodbye")
            assert (goodbye.reason, str(MAX_CREDITS) in goodbye.message) == ("PROTOCOL_ERROR", True)
        async with worker(executor) as two:
            await two.say(pb.WorkerMessage(resume=pb.Resume()), pb.WorkerMessage(resume=pb.Resume()))
            assert (await two.next("goodbye")).reason == "PROTOCOL_ERROR"


async def test_invocations_that_nobody_can_have_are_declined(hand: Hand) -> None:
    ids = ("", "no ulid", "\x00" * 26, "Z" * 26, "x" * 100_000, ulid_text(uuid.uuid4()))
    keys = [pb.InvocationKey(run_id=each, epoch=epoch, invocation=MOST) for each in ids for epoch in (-1, 2**63 - 1)]
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        await one.say(pb.WorkerMessage(resume=pb.Resume(items=[pb.Resume.Item(key=key) for key in keys])))
        answers = list((await one.next("resume_ack")).items)
        assert [each.key for each in answers] == keys
        assert not any(each.HasField("resumed_as") for each in answers)
        await begin(hand, executor, one)


async def test_credits_are_as_many_as_one_worker_may_have(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor, credits=MOST) as one:
        grants = [pb.WorkerMessage(credits=pb.Credits(add=add)) for add in (MOST, MOST, -MOST - 1)]
        await one.say(*grants)
        await begin(hand, executor, one)
        (known,) = executor.sessions
        assert known.credits == MAX_CREDITS - 1


async def test_definitions_of_five_megabytes_are_refused(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
        await one.hello([{"name": "work", "x": "y" * 5_000_000}])
        assert (await one.next("goodbye")).reason == "INVALID_DEFINITIONS"


async def test_a_flood_of_ops_for_nobody_and_of_ends_harms_no_other_worker(hand: Hand, rows: LiveRows) -> None:
    async with (
        stream_executor(hand.database, hand.tenant) as executor,
        worker(executor, "other") as bad,
        worker(executor) as good,
    ):
        key = pb.InvocationKey(run_id="nobody", epoch=1, invocation=1)
        flood = [pb.WorkerMessage(op=pb.Op(key=key, number=n)) for n in range(20_000)]
        flood += [pb.WorkerMessage(end=pb.InvocationEnd(key=key))] * 20_000
        await bad.say(*flood)
        run, key = await begin(hand, executor, good)
        await good.op(key, 1, {"op": "run_completed", "output": 1}, last=True)
        await good.ack()
        assert await rows.status(run) is Status.COMPLETED
        await until(lambda: _true(bad.heard("ack") == 20_000))


async def test_an_outbox_that_nobody_reads_makes_who_asks_for_more_wait() -> None:
    outbox = Outbox()
    await outbox.room()
    for _ in range(20):
        outbox.put(big(1024 * 1024))
    waiting = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    await outbox.take()
    await outbox.take()
    await asyncio.wait_for(waiting, 30)
    for _ in range(20):
        outbox.put(big(1024 * 1024))
    stuck = asyncio.create_task(outbox.room())
    await asyncio.sleep(0)
    outbox.close()
    await asyncio.wait_for(stuck, 30)


async def test_ops_without_a_text_take_room_too_and_those_of_a_cancelled_invocation_give_it_back() -> None:
    one = session()
    live = one.execute(("r", 1, 1), workflow="w", request="{}", traceparent=None, open_steps=())
    count = MAX_INBOX_BYTES // weight(b"") + 1
    for number in range(1, count + 1):
        assert live.arrived(pb.Op(number=number), 0.0)
    reading = asyncio.create_task(one.took_in(count * weight(b"")))
    await asyncio.sleep(0)
    assert not reading.done()
    one.close(live)
    await asyncio.wait_for(reading, 30)


async def test_a_project_has_so_many_sessions_and_not_more() -> None:
    known = sessions()
    ids = [str(uuid.uuid4()) for _ in range(MAX_SESSIONS)]
    for each in ids:
        known.meet(each, tenant=1, project=1, node="test")
    known.meet(ids[0], tenant=1, project=1, node="test")
    known.meet(ids[0], tenant=1, project=2, node="test")
    with pytest.raises(TooManyWorkers):
        known.meet(str(uuid.uuid4()), tenant=1, project=1, node="test")


async def test_a_hello_that_crosses_the_drain_is_sent_elsewhere(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, stranger(executor) as one:
        executor.sessions.announce_drain()  # the Challenge was given before
        await one.hello([{"name": "work"}])
        assert (await one.next("goodbye")).reason == "SHUTDOWN"
        assert not list(executor.sessions)


async def _true(holds: bool) -> bool:
    return holds


async def test_a_worker_that_does_not_read_is_given_nothing_more(hand: Hand) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        (session,) = executor.sessions
        outbox = Outbox()
        session.attach(outbox, 10)
        assert session.credits == 10
        session.send(big(20 * 1024 * 1024))
        assert session.credits == 0
        assert session not in executor.sessions._open
        await outbox.take()
        session.was_read()
        assert session.credits == 10
        assert session in executor.sessions._open
        assert one.session == session.session
