"""Hints that come late: an executor looks at the rows before it believes that a run was taken from it."""

from __future__ import annotations

import asyncio

from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from services.core.runtime.ids import ulid_text
from services.core.runtime.sealing import Sealer
from tests.support.engine import executing
from tests.support.fake_function import Op, Request, completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until


async def test_a_late_hint_of_a_cancel_does_not_stop_the_lease_after_the_retry(
    hand: Hand, rows: LiveRows, sealer: Sealer
) -> None:
    run = await hand.start("work")
    open_, answers = asyncio.Event(), 0

    async def script(request: Request) -> Op:
        nonlocal answers
        if "a" in request["steps"]:
            return {"op": "run_completed"}
        await open_.wait()
        answers += 1
        return completed("a")

    definitions = DefinitionsCache(sealer)
    async with executing(hand.database, {"work": script}, definitions=definitions) as (executor, functions):
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        await hand.cancel(run)
        await RunRetrier(hand.database, DefinitionsCache(None), Hints(NullPublisher())).retry(hand.tenant, run)
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 2)
        await executor.abandon([run])
        open_.set()

        async def completes() -> bool:
            return await rows.status(run) is Status.COMPLETED

        await until(completes)
    assert functions.stopped == [ulid_text(run)], "only the invocation of before the cancel"
    assert answers == 1
