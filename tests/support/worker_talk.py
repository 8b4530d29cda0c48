"""What tests of the worker stream say and wait for: ops, the begin of a run, the state that it comes to."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.run import Status
from services.core.runtime.ids import ulid_text
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until
from tests.support.worker import HandWorker, StreamExecutor

DONE = {"op": "run_completed", "output": 7}


def sleep(step_id: str, seconds: float = 60) -> dict[str, Any]:
    return {"op": "sleep", "id": step_id, "name": step_id, "duration": seconds}


def waiting(step_id: str, event: str = "paid") -> dict[str, Any]:
    return {"op": "wait_for_event", "id": step_id, "name": step_id, "event": event}


def failing(step_id: str, **fields: Any) -> dict[str, Any]:
    return {"op": "step_failed", "id": step_id, "name": step_id, "error": {"name": "Boom", "message": "no"}, **fields}


async def begin(hand: Hand, executor: StreamExecutor, one: HandWorker) -> tuple[UUID, pb.InvocationKey]:
    """A run of `work`, given to the worker."""
    run = await hand.start("work")
    executor.incarnation.hint([run])
    execute, request = await one.execute()
    assert request["run"]["id"] == execute.key.run_id == ulid_text(run)
    return run, execute.key


async def comes_to(rows: LiveRows, run: UUID, status: Status) -> None:
    async def is_there() -> bool:
        return await rows.status(run) is status

    await until(is_there)


async def again(executor: StreamExecutor, run: UUID, one: HandWorker) -> tuple[pb.Execute, dict[str, Any]]:
    executor.incarnation.hint([run])
    return await one.execute()
