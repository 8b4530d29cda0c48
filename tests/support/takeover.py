"""A run that a worker executes at one executor, before its stream comes to another."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.runtime.settings import LeaseSettings
from services.scheduler.partitions import EVERY_PARTITION
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.worker import HandWorker, StreamExecutor, stream_executor, worker

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
