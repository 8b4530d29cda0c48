"""Claims on their way into memory: however long that takes, they are no strangers, and nothing is executed twice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from services.core.domain.errors import Unavailable
from services.core.domain.op import StepCompleted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from services.core.runtime.ids import ulid_text
from services.core.runtime.settings import LeaseSettings
from services.core.store.queries import queries
from services.executor import claim
from services.executor import load as loading
from services.executor.arriving import Arriving, Tenure
from tests.support.engine import PATIENT, QuickClock, database, executing, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

OPTIONS: dict[str, Any] = {"lease": PATIENT, "clock": QuickClock()}


class SlowReading:
    """What is stored of claimed runs is read, and not returned until `go`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self._load = loading.load_leases
        patch.setattr(claim, "load_leases", self._read)

    async def _read(self, *args: Any) -> Any:
        found = await self._load(*args)
        self.begun.set()
        await self.go.wait()
        return found


async def a_stranger_is_let_go(rows: LiveRows, owner: int) -> None:
    """Wait until the heartbeat has lost its patience with a run that nobody here knows of."""
    stranger = await rows.held(owner)

    async def let_go() -> bool:
        live = await rows.live(stranger)
        return live is not None and live["owner"] is None

    await until(let_go)


async def test_c4_a_claim_that_is_being_read_is_no_stranger(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    reading = SlowReading(monkeypatch)
    await hand.declare({"name": "work", "retries": 0})
    async with executing(hand.database, {"work": lambda request: _end(calls, request)}, **OPTIONS) as (executor, _):
        run = await hand.start("work")
        executor.hint([run])
        await asyncio.wait_for(reading.begun.wait(), 10)
        await a_stranger_is_let_go(rows, executor.owner.id)
        live = await rows.live(run)
        assert live is not None
        assert (live["owner"], live["epoch"]) == (executor.owner.id, 1)
        reading.go.set()
        await until(lambda: rows.value("select exists (select from rt.ends where run = $1)", run))
    assert [call["run"]["id"] for call in calls].count(ulid_text(run)) == 1


async def test_c4_a_lease_that_was_let_go_before_it_came_is_not_held(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the answer to the claim itself was long on its way."""
    calls: list[Any] = []
    reading = SlowReading(monkeypatch)
    monkeypatch.setattr(Arriving, "reading", _untold)
    await hand.declare({"name": "work", "retries": 0})
    async with executing(hand.database, {"work": lambda request: _end(calls, request)}, **OPTIONS) as (executor, _):
        run = await hand.start("work")
        executor.hint([run])
        await asyncio.wait_for(reading.begun.wait(), 10)
        await a_stranger_is_let_go(rows, executor.owner.id)
        await until(lambda: rows.value("select owner is null and epoch = 2 from rt.live where id = $1", run))
        reading.go.set()
        await until(lambda: rows.value("select exists (select from rt.ends where run = $1)", run))
    assert [call["run"]["id"] for call in calls].count(ulid_text(run)) == 1


async def test_c4_a_claim_in_doubt_is_found_though_the_lease_before_is_in_memory(hand: Hand, rows: LiveRows) -> None:
    calls: list[Any] = []
    called = asyncio.Event()

    async def script(request: Any) -> Any:
        called.set()
        if not calls:
            calls.append(request)
            await asyncio.Event().wait()
        return _end(calls, request)

    await hand.declare({"name": "work", "retries": 0})
    async with executing(hand.database, {"work": script}, **OPTIONS) as (executor, _):
        run = await hand.start("work")
        executor.hint([run])
        await asyncio.wait_for(called.wait(), 10)
        # Cancelled, of which the hint is lost, retried, and claimed again here: the answer of that is lost too.
        await hand.cancel(run)
        await RunRetrier(hand.database, DefinitionsCache(None), Hints(NullPublisher())).retry(hand.tenant, run)
        assert await rows.rows(queries("executor")["claim_hinted"], executor.owner.id, [run], 10)
        await until(lambda: rows.value("select exists (select from rt.ends where run = $1)", run))
    assert len(calls) == 2


UNHURRIED = LeaseSettings(ttl_s=600.0, heartbeat_s=200.0)
"""No beat comes by itself."""


async def test_c4_a_run_whose_claim_has_failed_goes_on_soon(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the connection broke after the claim was committed."""
    load = loading.load_leases
    failed: list[Any] = []

    async def fail_once(*args: Any) -> Any:
        if not failed:
            failed.append(args)
            raise Unavailable("the connection broke")
        return await load(*args)

    monkeypatch.setattr(claim, "load_leases", fail_once)
    await hand.declare({"name": "work", "retries": 0})
    calls: list[Any] = []
    async with executing(hand.database, {"work": lambda request: _end(calls, request)}, lease=UNHURRIED) as (one, _):
        run = await hand.start("work")
        one.hint([run])
        await until(lambda: rows.value("select exists (select from rt.ends where run = $1)", run))
    assert failed
    assert len(calls) == 1
    assert await rows.value("select count(*) from rt.attempts") == 0


async def test_c4_a_run_that_was_dropped_as_the_database_was_away_goes_on_soon(hand: Hand, rows: LiveRows) -> None:
    failed: list[str] = []

    async def fail_once(place: str) -> None:
        if place == "before commit" and not failed:
            failed.append(place)
            raise Unavailable("the connection broke")

    await hand.declare({"name": "work", "retries": 0})
    calls: list[Any] = []
    scripts = {"work": lambda request: _end(calls, request)}
    async with executing(hand.database, scripts, lease=UNHURRIED, probe=fail_once) as (executor, _):
        run = await hand.start("work")
        executor.hint([run])
        await until(lambda: rows.value("select exists (select from rt.ends where run = $1)", run))
    assert failed
    assert len(calls) == 2


async def test_what_is_much_is_read_and_begun_piece_by_piece(
    hand: Hand, rows: LiveRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_READ_BYTES", 1_000)
    read: list[int] = []
    load = loading.load_leases

    async def count(connection: Any, definitions: Any, piece: Any) -> Any:
        read.append(len(piece))
        return await load(connection, definitions, piece)

    monkeypatch.setattr(claim, "load_leases", count)
    await hand.declare({"name": "work"})
    runs = []
    for size in (10, 10, 990, 10, 2_000, 10):
        run = await hand.start("work")
        await hand.answer(run, StepCompleted(id="a", name="a", output=f'"{"x" * size}"'))
        lease = await hand.hold(run)
        assert lease is not None
        await hand.let_go(lease)
        runs.append(run)
    calls: list[Any] = []
    async with executing(hand.database, {"work": lambda request: _end(calls, request)}) as (executor, _):
        executor.hint(runs)
        await until(lambda: rows.value("select count(*) = 6 from rt.ends"))
    assert sum(read) == 6
    assert max(read) < 6


def _end(calls: list[Any], request: Any) -> Any:
    calls.append(request)
    return {"op": "run_completed", "output": None}


@contextlib.contextmanager
def _untold(self: Arriving, tenures: Iterable[Tenure]) -> Iterator[None]:
    list(tenures)
    yield
