"""The attempt with which a run ends counts as the ones before it: a retry goes on from there."""

from __future__ import annotations

from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]


async def test_a_retry_numbers_its_attempts_after_those_of_the_life_before(hand: Hand, rows: LiveRows) -> None:
    await hand.declare({"name": "work", "retries": 1})
    run = await hand.start("work")
    assert await hand.fail(run) is not Status.FAILED
    await hand.fire(run)
    assert await hand.fail(run) is Status.FAILED
    assert await rows.value("select att from rt.ends where run = $1", run) == 2
    await RunRetrier(rows.database, DefinitionsCache(None), Hints(NullPublisher())).retry(rows.tenant, run)
    assert await hand.fail(run) is not Status.FAILED
    await hand.fire(run)
    assert await hand.fail(run) is Status.FAILED
    found = await rows.rows("select n, k from rt.attempts where run = $1 order by n", run)
    assert [(row["n"], row["k"]) for row in found] == [(0, 1), (1, 2), (2, 1), (3, 2)]
