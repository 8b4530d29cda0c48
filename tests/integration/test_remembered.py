"""A run that is resumed goes on with what is remembered of it, where nothing else has happened: as if it were read."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from services.core.domain.cause import Answered
from services.core.domain.op import (
    Invoke,
    Op,
    OpError,
    RunCompleted,
    RunFailed,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.run import Limits, Status
from services.core.domain.transition import decide
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.run_marks import RunMarks
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import SystemClock
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from services.executor.asleep import Asleep
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.record import commit_item
from services.executor.remembered import Remembered, RememberedClaims, Resumed
from services.executor.worker_stream.pool_claims import PoolClaims
from services.executor.worker_stream.sessions import WorkerSessions
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.pipeline import owner, pipeline

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]

STEP = StepCompleted(id="a", name="a", output='{"n":1.0}')
WAIT = WaitForEvent(id="go", name="go", event="go", timeout_ms=DAY_MS)
OTHER = WaitForEvent(id="no", name="no", event="no", timeout_ms=DAY_MS)
CHILD = Invoke(id="go", name="go", workflow="child", data="{}", timeout_ms=DAY_MS)
NAP = Sleep(id="go", name="go", for_ms=DAY_MS)
FAILS = StepFailed(id="go", name="go", error=OpError("Odd", "no"))
MUCH = 16_384


class Stage:
    """An owner that remembers what it lets go of. `among_others`: it claims no run by itself."""

    def __init__(self, hand: Hand, rows: LiveRows, pipeline: Pipeline, owner: int, *, among_others: bool) -> None:
        self.among_others = among_others
        self.beside: Asleep | None = None
        self.hand, self.rows, self.pipeline, self.owner = hand, rows, pipeline, owner
        self.remembered = Remembered()
        self.definitions = DefinitionsCache(None)
        self.sessions = WorkerSessions(SystemClock(), request_timeout_s=30, resume_grace_s=5)
        pools = PoolClaims(self.sessions, Hints(NullPublisher()))
        self.claims = RememberedClaims(self.remembered, self.definitions, pools, owner=owner)

    async def waits(self, *ops: Op) -> UUID:
        """A run whose last op is a wait, and that is remembered."""
        if self.among_others and self.beside is None:
            self.beside = await self._rests(OTHER)
        asleep = await self._rests(*ops)
        self.remembered.keep(asleep)
        return asleep.run

    async def _rests(self, *ops: Op) -> Asleep:
        run = await self.hand.start("work", '{"x":1}')
        async with self.hand.database.connection() as connection:
            live = await connection.fetch(queries("executor")["claim_hinted"], self.owner, [run], 1)
            (lease,) = await load_leases(connection, self.definitions, live)
        for op in ops:
            asleep = await self.commit(lease, op)
        assert asleep is not None
        return asleep

    async def commit(self, lease: Lease, op: Op) -> Asleep | None:
        decision = decide(lease.view(Limits()), Answered((op,)), lease.reached_ms)
        item = commit_item(lease, decision, self.hand.ids)
        done = await self.pipeline.commit(item)
        lease.advance(decision, item, done)
        return Asleep.of(lease, item, done, item.wait_rows[0]) if item.wait_rows else None

    async def claim(self, *runs: UUID, most_bytes: int = MUCH, room: int = 9, each: int = 9) -> Resumed:
        if self.beside is not None and len(runs) == 1:
            self.remembered.keep(self.beside)
            runs = (self.beside.run, *runs)
        async with self.hand.database.connection() as connection:
            return await self.claims.claim(connection, runs, room=room, most_of=lambda _: each, most_bytes=most_bytes)

    async def read(self, run: UUID) -> Lease:
        async with self.hand.database.connection() as connection:
            live = await connection.fetch(queries("executor")["taken_over"], self.owner, [run])
            (lease,) = await load_leases(connection, self.definitions, live)
        return lease

    async def children_end(self, *ops: Op) -> None:
        for row in await self.rows.rows("select id from rt.live where parent is not null"):
            assert await self.hand.answer(row["id"], *ops) is not Status.RUNNING
        database = self.hand.database
        await RunMarks(database, Hints(NullPublisher()), RunTraces.off(database)).cascade()


@pytest.fixture(params=[False, True], ids=["alone", "among others"])
async def stage(hand: Hand, rows: LiveRows, pipeline: Pipeline, owner: int, request: pytest.FixtureRequest) -> Stage:
    await hand.declare({"name": "work"}, {"name": "child", "retries": 0})
    return Stage(hand, rows, pipeline, owner, among_others=request.param)


async def an_event(stage: Stage, run: UUID) -> None:
    assert (await stage.hand.send("go", '{"key":"k"}')).resumed == 1


async def time_over(stage: Stage, run: UUID) -> None:
    await stage.hand.fire(run)


async def a_result(stage: Stage, run: UUID) -> None:
    await stage.children_end(RunCompleted(output='{"of":"child"}'))


async def a_failure(stage: Stage, run: UUID) -> None:
    await stage.children_end(RunFailed(error=OpError("Odd", "no"), non_retriable=True))


@pytest.mark.parametrize(
    ("wait", "comes"),
    [
        (WAIT, an_event),
        (WAIT, time_over),
        (CHILD, a_result),
        (CHILD, a_failure),
        (CHILD, time_over),
        (NAP, time_over),
        (FAILS, time_over),
    ],
)
async def test_what_is_remembered_is_what_would_have_been_read(
    stage: Stage, wait: Op, comes: Callable[[Stage, UUID], Awaitable[None]]
) -> None:
    run = await stage.waits(STEP, wait)
    await comes(stage, run)
    resumed = await stage.claim(run)
    (lease,) = resumed.leases
    assert resumed.unread == []
    read = await stage.read(run)
    names = ("run", "tenant", "epoch", "rev", "mail", "source", "event", "test", "parent", "trace", "started_ms")
    more = ("max_attempts", "steps", "size", "attempts", "function_failures", "repeats", "gates", "failing")
    last = ("open_steps", "entry", "project", "affinity", "unnamed", "leave", "invocations")
    for name in (*names, *more, *last):
        assert getattr(lease, name) == getattr(read, name), name
    assert (lease.memo.steps, lease.memo.order) == (read.memo.steps, read.memo.order)
    assert (lease.memo.order, lease.memo.size) == ('"a"' if wait is FAILS else '"a","go"', read.memo.size)
    assert lease.reached_ms <= read.reached_ms
    live = await stage.rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["qk"]) == ("r", stage.owner, None)
    assert live["taken"] >= live["started"]
    assert await stage.commit(lease, RunCompleted(output="1")) is None
    assert await stage.rows.value("select status::text from rt.ends where run = $1", run) == "completed"


async def untouched(stage: Stage, run: UUID, st: str = "q") -> None:
    """Nobody holds it, and it is remembered no more."""
    live = await stage.rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"]) == (st, None)
    assert list(stage.remembered.of([run])) == []


async def test_one_that_still_waits_is_not_claimed(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run, "w")


@pytest.mark.parametrize("moved", ["mail", "rev", "epoch"])
async def test_one_to_which_something_else_has_happened_is_not_claimed(stage: Stage, moved: str) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    await stage.rows.value(f"update rt.live set {moved} = {moved} + 1 where id = $1 returning 1", run)
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run)


async def test_one_that_another_had_meanwhile_is_not_claimed(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    assert await stage.hand.answer(run, WaitForEvent(id="more", name="more", event="more", timeout_ms=DAY_MS))
    await stage.hand.send("more")
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run)


async def test_one_whose_limits_were_changed_is_not_claimed(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    limits = (
        "insert into rt.gate_rule (wf, tenant, keys, a) select wf, tenant, 7, 1 from rt.live where id = $1 returning 1"
    )
    assert await stage.rows.value(limits, run)
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run)


async def test_an_owner_that_was_declared_dead_claims_none(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    await stage.rows.value("update rt.owner set dead = true where id = $1 returning 1", stage.owner)
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run)


async def test_one_whose_row_another_holds_is_not_waited_for(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    async with stage.hand.database.transaction() as connection:
        await connection.execute("select from rt.live where id = $1 for no key update", run)
        assert await stage.claim(run) == ([], [])
    await untouched(stage, run)


async def test_two_that_remember_the_same_run_never_both_hold_it(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    (asleep,) = stage.remembered.of([run])
    await an_event(stage, run)
    (lease,) = (await stage.claim(run)).leases
    stage.remembered.keep(asleep)
    assert await stage.claim(run) == ([], [])
    live = await stage.rows.live(run)
    assert live is not None
    assert live["epoch"] == lease.epoch


async def test_c11_a_result_of_many_bytes_is_read_when_the_claim_is_committed(stage: Stage) -> None:
    run = await stage.waits(STEP, WAIT)
    await stage.hand.send("go", json.dumps({"pad": "x" * 200}))
    assert await stage.claim(run, most_bytes=200) == ([], [run])
    lease = await stage.read(run)
    assert lease.memo.order == '"a","go"'


async def test_no_more_are_claimed_than_there_is_room_for_and_a_tenants_share(stage: Stage) -> None:
    runs = [await stage.waits(WAIT) for _ in range(5)]
    assert (await stage.hand.send("go")).resumed == 5
    first = await stage.claim(*runs, each=2)
    assert first.runs == set(runs[:2])
    second = await stage.claim(*runs, room=1)
    assert second.runs == {runs[2]}
    rest = await stage.claim(*runs, runs[4])
    assert rest.runs == set(runs[3:])


async def test_one_that_only_workers_serve_is_left_to_who_has_one(stage: Stage) -> None:
    run = await stage.waits(WAIT)
    await an_event(stage, run)
    await stage.rows.value("update rt.live set pooled = true where id = $1 returning 1", run)
    assert await stage.claim(run) == ([], [])
    await untouched(stage, run)
