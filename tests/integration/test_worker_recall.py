"""Workers are asked for what is kept for them: what never reached them costs nothing, what they have goes on (S2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from services.core.runtime.settings import LeaseSettings
from services.core.store.queries import queries
from services.scheduler.partitions import EVERY_PARTITION
from tests.support.engine import PATIENT, QuickClock
from tests.support.fake_function import completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until
from tests.support.worker import HandWorker, StreamExecutor, reported, stream_executor, worker

DONE = {"op": "run_completed", "output": 7}
BRINGS = {"features": ["resume", "bring"]}
DEAF = LeaseSettings(ttl_s=600.0, heartbeat_s=200.0)
"""Of an executor that does not notice that it was declared dead."""


class Given:
    """A run that one executor has given to a worker, and a second executor."""

    def __init__(self, rows: LiveRows, first: StreamExecutor, second: StreamExecutor, one: HandWorker) -> None:
        self.rows = rows
        self.first = first
        self.second = second
        self.one = one
        self.run = UUID(int=0)
        self.key = pb.InvocationKey()

    async def begin(self, hand: Hand) -> None:
        self.run = await hand.start("work")
        self.first.incarnation.hint([self.run])
        self.key = (await self.one.execute())[0].key

    async def kill_first(self) -> None:
        await self.rows.value("update rt.owner set dead = true where id = $1", self.first.incarnation.owner.id)
        await self.rows.rows("select * from rt.rescue_v1(100)")

    @contextlib.asynccontextmanager
    async def back(self, **fields: Any) -> AsyncIterator[HandWorker]:
        """The worker on a stream to the second executor, where it has named nothing."""
        fields = {**BRINGS, **fields}
        async with worker(self.second, session=self.one.session, resuming=True, **fields) as back:
            await back.say(pb.WorkerMessage(resume=pb.Resume()))
            assert list((await back.next("resume_ack")).items) == []
            yield back

    async def asked(self, back: HandWorker) -> pb.InvocationKey:
        (key,) = (await back.next("recall")).keys
        assert (key.run_id, key.epoch) == (self.key.run_id, self.key.epoch)
        found: pb.InvocationKey = key
        return found

    async def time_is_over(self) -> None:
        await self.rows.value("update rt.wait set due_at = rt.now() where run = $1", self.run)
        await self.rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)

    async def attempts(self) -> int:
        count: int = await self.rows.value("select count(*) from rt.attempts where run = $1", self.run)
        return count


@pytest.fixture
async def given(hand: Hand, rows: LiveRows) -> AsyncIterator[Given]:
    async with (
        stream_executor(hand.database, hand.tenant, lease=DEAF) as first,
        worker(first) as one,
        stream_executor(hand.database, hand.tenant) as second,
    ):
        made = Given(rows, first, second, one)
        await made.begin(hand)
        yield made


@pytest.mark.parametrize("comes_first", ["the worker", "the rescue"])
async def test_what_never_reached_its_worker_is_executed_at_once_and_is_no_attempt(
    given: Given, comes_first: str
) -> None:
    if comes_first == "the rescue":
        await given.kill_first()
    async with given.back() as back:
        if comes_first == "the worker":
            await given.kill_first()
        await back.say(pb.WorkerMessage(bring=pb.Bring(unknown=[await given.asked(back)])))
        execute, _ = await back.execute()
        assert (execute.key.run_id, execute.key.epoch) == (given.key.run_id, given.key.epoch + 3)
        await back.op(execute.key, 1, DONE, last=True)
        await back.ack()
    assert await given.rows.status(given.run) is Status.COMPLETED
    assert await given.attempts() == 0


async def test_what_the_worker_has_over_another_stream_goes_on_here(given: Given) -> None:
    async with given.back() as back:
        await given.kill_first()
        await given.asked(back)
        item = pb.Resume.Item(key=given.key, unacked=[reported(given.key, 1, completed("a")).op])
        await back.say(pb.WorkerMessage(bring=pb.Bring(items=[item])))
        (resumed,) = (await back.next("resume_ack")).items
        assert resumed.key == given.key
        assert (await back.ack()).key == resumed.resumed_as
        await back.op(resumed.resumed_as, 2, DONE, last=True)
        await back.ack()
    assert await given.rows.status(given.run) is Status.COMPLETED
    assert await given.attempts() == 0


async def test_about_what_it_has_dropped_the_worker_is_silent_and_it_is_an_attempt(given: Given) -> None:
    await given.kill_first()
    async with given.back() as back:
        await given.asked(back)
        await given.second.recalls.look()
        await given.time_is_over()
        assert await given.attempts() == 1
        execute, _ = await back.execute()  # what was said before it has come, too
        assert back.heard("recall") == 0, "each is asked for once"
        await back.op(execute.key, 1, DONE, last=True)
        await back.ack()
    assert await given.attempts() == 1


async def test_a_worker_that_loses_a_draining_stream_brings_along_what_it_carried(given: Given) -> None:
    """Unasked, and from an executor that lives."""
    async with given.back() as back:
        given.one.cut()
        await back.say(pb.WorkerMessage(bring=pb.Bring(items=[pb.Resume.Item(key=given.key)])))
        (resumed,) = (await back.next("resume_ack")).items
        assert resumed.resumed_as.epoch == given.key.epoch + 1
        # Its answer may have been lost: it is told so once more.
        await back.say(pb.WorkerMessage(bring=pb.Bring(items=[pb.Resume.Item(key=given.key)])))
        assert (await back.next("resume_ack")).items[0].resumed_as == resumed.resumed_as
        await back.op(resumed.resumed_as, 1, DONE, last=True)
        await back.ack()
    assert await given.attempts() == 0


async def test_a_worker_that_cannot_answer_is_not_asked(given: Given) -> None:
    await given.kill_first()
    async with given.back(features=["resume"]) as back:
        await given.second.recalls.look()
        await given.time_is_over()
        await back.execute()
        assert back.heard("recall") == 0


async def test_a_worker_that_was_not_asked_gives_nothing_up(given: Given) -> None:
    await given.kill_first()
    async with given.back(features=["resume"]) as back:
        asked = pb.InvocationKey(run_id=given.key.run_id, epoch=given.key.epoch)
        item = pb.Resume.Item(key=pb.InvocationKey(run_id=ulid_text(uuid4()), epoch=1, invocation=1))
        await back.say(pb.WorkerMessage(bring=pb.Bring(items=[item], unknown=[asked])))
        await back.next("resume_ack")
        assert await given.rows.status(given.run) is Status.PARKED


async def test_a_bring_comes_after_the_resume(given: Given) -> None:
    async with worker(given.second, session=given.one.session, resuming=True, **BRINGS) as back:
        await back.say(pb.WorkerMessage(bring=pb.Bring(items=[pb.Resume.Item(key=given.key)])))
        assert (await back.next("goodbye")).reason == "PROTOCOL_ERROR"


async def test_only_what_is_kept_for_the_session_under_just_that_epoch_is_given_up_by_it(given: Given) -> None:
    async def says(session: UUID, tenant: int, epoch: int) -> list[Any]:
        return list(await given.rows.rows(queries("executor")["never_begun"], session, tenant, [given.run], [epoch]))

    session, tenant, epoch = UUID(given.one.session), given.rows.tenant, given.key.epoch
    assert await says(session, tenant, epoch) == [], "it is held"
    await given.kill_first()
    assert await says(uuid4(), tenant, epoch) == []
    assert await says(session, tenant + 1, epoch) == []
    assert await says(session, tenant, epoch - 1) == []
    assert await says(session, tenant, epoch + 1) == []
    assert await given.rows.status(given.run) is Status.PARKED
    assert len(await says(session, tenant, epoch)) == 1
    assert await given.rows.status(given.run) is Status.QUEUED
    assert await given.rows.value("select count(*) from rt.wait where run = $1", given.run) == 0


async def test_what_was_taken_over_once_had_begun_whatever_the_worker_knows_of_it(given: Given) -> None:
    """It may not have heard of the executor that took it over, and is asked by both keys."""
    taken = await given.rows.rows(
        queries("executor")["take_over"],
        await given.rows.owner(),
        UUID(given.one.session),
        given.rows.tenant,
        await given.rows.value("select array[wf] from rt.live where id = $1", given.run),
        [given.run],
        [given.key.epoch],
    )
    assert len(taken) == 1
    await given.rows.rows(
        "update rt.owner set dead = true where id = (select owner from rt.live where id = $1)", given.run
    )
    await given.rows.rows("select * from rt.rescue_v1(100)")
    async with given.back() as back:
        keys = (await back.next("recall")).keys
        assert [key.epoch for key in keys] == [given.key.epoch, given.key.epoch + 1]
        for key in keys:
            answer = given.rows.tenant, [given.run], [key.epoch]
            assert await given.rows.rows(queries("executor")["never_begun"], UUID(given.one.session), *answer) == []
    await given.time_is_over()
    assert await given.attempts() == 1


async def test_a_claim_whose_answer_was_lost_is_asked_for(hand: Hand, rows: LiveRows) -> None:
    """The database counts it as held by this executor, which knows nothing of it: it may be executed, or not."""
    async with (
        stream_executor(hand.database, hand.tenant, lease=PATIENT, clock=QuickClock()) as executor,
        worker(executor, credits=1, **BRINGS) as one,
    ):
        busy = await hand.start("work")
        executor.incarnation.hint([busy])
        first, _ = await one.execute()
        run = await hand.start("work")
        wf = await rows.value("select wf from rt.live where id = $1", run)
        owner = executor.incarnation.owner.id
        claimed = await rows.rows(queries("executor")["claim_pooled"], owner, [wf], [0], [0], [UUID(one.session)])
        assert [row["id"] for row in claimed] == [run]
        (asked,) = (await one.next("recall")).keys
        assert asked.run_id == ulid_text(run)
        await one.say(pb.WorkerMessage(bring=pb.Bring(unknown=[asked])))
        await one.op(first.key, 1, DONE, last=True)
        again, _ = await one.execute()
        assert again.key.run_id == ulid_text(run)
        await one.op(again.key, 1, DONE, last=True)
        await until(lambda: _ended(rows, run))
    assert await rows.value("select count(*) from rt.attempts") == 0


async def test_what_was_executed_when_the_engine_itself_failed_is_an_attempt(hand: Hand, rows: LiveRows) -> None:
    failed = asyncio.Event()

    async def fail(point: str) -> None:
        if point == "before commit" and not failed.is_set():
            failed.set()
            raise RuntimeError("a fault of the engine")

    async with stream_executor(hand.database, hand.tenant, probe=fail) as executor, worker(executor, **BRINGS) as one:
        run = await hand.start("work")
        executor.incarnation.hint([run])
        execute, _ = await one.execute()
        await one.op(execute.key, 1, completed("a"))
        await one.next("cancel")  # what is executed is dropped: the worker does not say that nothing has begun
        await one.next("recall")
        await rows.value("update rt.wait set due_at = rt.now() where run = $1", run)
        await rows.rows("select * from rt.fire_v1($1, 100)", EVERY_PARTITION)
        again, _ = await one.execute()
        await one.op(again.key, 1, DONE, last=True)
        await until(lambda: _ended(rows, run))
    assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 1


async def _ended(rows: LiveRows, run: UUID) -> bool:
    return await rows.live(run) is None
