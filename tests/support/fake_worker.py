"""A worker that is scripted by the test as `FakeFunction` is: the same scripts, over the worker stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from runr.workflows.v1 import worker_service_pb2 as pb

from tests.support.fake_function import Op, Request, Script
from tests.support.worker import Door, HandWorker, stranger

_RESTS = frozenset(("sleep", "wait_for_event", "invoke"))
_ENDS = frozenset(("run_completed", "run_failed"))
_BEAT_S = 5.0

Place = tuple[str, int, int, int]
"""Run, epoch, invocation, number of an op."""


class Refused(Exception):
    """The engine has said goodbye."""


class FakeWorker:
    """Executes one op after another, each once the one before it is acknowledged, as an SDK does."""

    def __init__(self, hand: HandWorker, workflows: Mapping[str, Script]) -> None:
        self._hand = hand
        self._workflows = workflows
        self._answers: dict[Place, asyncio.Future[pb.Ack]] = {}
        self._invocations: dict[tuple[str, int, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled. A script that fails ends it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_acks())
            group.create_task(self._take_cancels())
            group.create_task(self._beat())
            while True:
                execute, request = await self._hand.execute(guard_s=None)
                self._invocations[_key(execute.key)] = group.create_task(self._execute(execute.key, request))

    async def _execute(self, key: pb.InvocationKey, request: Request) -> None:
        number, goes_on = 0, True
        while goes_on:
            op = self._workflows[request["workflow"]](request)
            assert isinstance(op, dict), "a worker reports ops"
            number += 1
            last = op["op"] in _RESTS | _ENDS
            ack = await self._report(key, number, op, last=last)
            goes_on = not last and ack.outcome != pb.ACK_OUTCOME_ABANDONED and not ack.yield_reason
            if not last and not goes_on:
                await self._hand.end(key)
            request["steps"][op.get("id")] = json.loads(ack.step) if ack.step else {"output": op.get("output")}

    async def _report(self, key: pb.InvocationKey, number: int, op: Op, *, last: bool) -> pb.Ack:
        answer: asyncio.Future[pb.Ack] = asyncio.get_running_loop().create_future()
        self._answers[*_key(key), number] = answer
        await self._hand.op(key, number, op, last=last)
        return await answer

    async def _take_acks(self) -> None:
        while True:
            ack = await self._hand.next("ack", guard_s=None)
            answer = self._answers.pop((*_key(ack.key), ack.number), None)
            if answer is not None and not answer.done():
                answer.set_result(ack)

    async def _take_cancels(self) -> None:
        while True:
            cancel = await self._hand.next("cancel", guard_s=None)
            self._invocations[_key(cancel.key)].cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_S)
            await self._hand.say(pb.WorkerMessage(heartbeat=pb.Heartbeat()))


@asynccontextmanager
async def fake_worker(
    door: Door, workflows: Mapping[str, Script], *, tenant: str, definitions: Sequence[Mapping[str, Any]]
) -> AsyncIterator[FakeWorker]:
    """A worker of a project of this tenant during the block. Raises Refused with the engine's words."""
    async with stranger(door) as hand:
        await hand.hello(definitions, tenant=tenant)
        known = {asyncio.ensure_future(hand.next(kind)): kind for kind in ("hello_ack", "goodbye")}
        done, others = await asyncio.wait(known, return_when=asyncio.FIRST_COMPLETED)
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if known[first := done.pop()] == "goodbye":
            raise Refused(f"{first.result().reason}: {first.result().message}")
        worker = FakeWorker(hand, workflows)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
            if running.done():
                running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})


def _key(key: pb.InvocationKey) -> tuple[str, int, int]:
    return key.run_id, key.epoch, key.invocation
