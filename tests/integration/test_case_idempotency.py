"""Case 13 of `tests/vectors/data/cases.jsonl`: a key leads to its run, whatever became of that, until it is pruned."""

from __future__ import annotations

import json

from services.core.domain.op import OpError, RunFailed
from services.core.domain.run import Status
from services.core.engine.accept_plan import Incoming
from services.core.store.runs import RunReader
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.pruning import age_ends, whole_pass


async def test_case_13_idempotency_dead_run(hand: Hand, rows: LiveRows) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "go"}], "idempotency": "event.data.k"})
    reader = RunReader(rows.database)
    run = await hand.start("work", idempotency_key="K")
    no = RunFailed(error=OpError("Error", "no"), non_retriable=True)
    assert await hand.answer(run, no) is Status.FAILED

    by_api = await hand.start("work", idempotency_key="K")
    batch = [Incoming(name="go", data=json.dumps({"k": k})) for k in ("other", "K", "K")]
    by_events = [each.runs[0] for each in await hand.send_all(batch)]
    assert [by_api, *by_events[1:]] == [run] * 3
    assert by_events[0] != run
    assert (await reader.one(rows.tenant, by_api)).state == "failed"

    await age_ends(rows, 31)
    await whole_pass(rows)
    anew = await hand.start("work", idempotency_key="K")
    assert anew != run
    assert await rows.status(anew) is Status.QUEUED
