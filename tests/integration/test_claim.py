"""Executors over a real Postgres: who holds which run, and what becomes of it when they drain, die or are wrong."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.matching import name_hash
from services.core.domain.op import StepCompleted, WaitForEvent
from services.core.domain.run import Status
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.ids import ulid_text, ulid_uuid
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import LeaseSettings
from services.core.store.queries import queries, tenant_query
from services.executor.incarnation import Incarnation
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.owner import OwnerLost
from tests.support.engine import (
    PATIENT,
    HandClock,
    QuickClock,
    ScriptedFunctions,
    database,
    executing,
    kill,
    living,
    make_incarnation,
    postgres_url,
)
from tests.support.fake_function import Answer, Request, Script, completed, failed, replaying, wait_for_event
from tests.support.hand import Hand, playing
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, rows, until

__all__ = ["database", "postgres_url", "rows"]

QUICK = LeaseSettings(ttl_s=3.0, heartbeat_s=0.1)


async def ended(rows: LiveRows, runs: Sequence[UUID], status: Status = Status.COMPLETED) -> None:
    """Wait until all of these runs have ended so."""

    async def all_ended() -> bool:
        count = await rows.value(
            "select count(*) from rt.ends where run = any ($1) and status = $2", runs, status.value
        )
        return bool(count == len(runs))

    await until(all_ended, 30.0)


class Bodies:
    """A workflow of two steps that counts how often each step's body is executed, by run."""

    def __init__(self) -> None:
        self.executed: Counter[tuple[UUID, str]] = Counter()

    def __call__(self, request: Request) -> Answer:
        for step in ("a", "b"):
            if step not in request["steps"]:
                self.executed[ulid_uuid(request["run"]["id"]), step] += 1
                return completed(step, step)
        return {"op": "run_completed", "output": None}


class Gate:
    """A function that answers only when it is let."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.open = asyncio.Event()

    async def __call__(self, request: Request) -> Answer:
        await self.open.wait()
        return self.answers.pop(0)


# ---- claiming


async def test_c26_doubled_hints_claim_once(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(10)]
    bodies = Bodies()
    async with executing(hand.database, {"work": bodies}) as (executor, _):
        for _ in range(5):
            executor.hint(runs)
        await ended(rows, runs)
    assert bodies.executed == {(run, step): 1 for run in runs for step in "ab"}


async def test_two_executors_never_hold_one_run(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(80)]
    bodies = Bodies()
    scripts: dict[str, Script] = {"work": bodies}
    async with executing(hand.database, scripts) as (one, _), executing(hand.database, scripts) as (two, _):
        one.hint(runs)
        two.hint(reversed(runs))
        await ended(rows, runs)
    assert bodies.executed == {(run, step): 1 for run in runs for step in "ab"}
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs) == 160


async def test_runs_are_found_without_any_hint(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(5)]
    async with executing(hand.database, {"work": Bodies()}):
        await ended(rows, runs)


async def test_a_hint_for_what_is_not_ready_is_nothing(hand: Hand, rows: LiveRows) -> None:
    later = await hand.start("work", delay_ms=DAY_MS)
    ready = await hand.start("work")
    async with executing(hand.database, {"work": Bodies()}) as (executor, functions):
        executor.hint([later, UUID(int=1), ready])
        await ended(rows, [ready])
    assert await rows.status(later) is Status.DELAYED
    assert {request["run"]["id"] for request in functions.requests} == {ulid_text(ready)}


async def test_no_more_runs_are_held_than_there_are_slots(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(20)]
    running = most = 0

    async def script(request: Request) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return {"op": "run_completed"}

    async with executing(hand.database, {"work": script}, slots=3) as (executor, _):
        executor.hint(runs)
        await ended(rows, runs)
        assert most == 3


async def test_an_executor_that_was_silent_has_room_again_when_it_is_heard(hand: Hand, rows: LiveRows) -> None:
    clock = HandClock()
    executor = make_incarnation(hand.database, ScriptedFunctions({}), clock=clock, lease=QUICK)
    clock.seconds += QUICK.ttl_s
    waiting = asyncio.create_task(executor.wait_for_room())
    await asyncio.wait({waiting}, timeout=0.05)
    assert not waiting.done()
    clock.seconds -= QUICK.ttl_s
    assert await asyncio.wait_for(waiting, 10) == 64


async def test_p8_a_tenants_backlog_hides_nobody_elses_run(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    for _ in range(60):
        await hand.start("work")
    small: list[UUID] = []
    for slug in ("small-1", "small-2"):
        tenant = await rows.value("select rt.create_tenant($1, '')", slug)
        async with rows.database.transaction() as connection:
            await create_project(connection, sealer, tenant, f"p-{tenant}", ProjectChange())
        async with playing(rows.database, tenant, f"p-{tenant}") as other:
            await other.declare({"name": "work"})
            small.append(await other.start("work"))
    gate = Gate()
    async with executing(hand.database, {"work": gate}, slots=6) as (executor, _):

        async def all_held() -> bool:
            return len(executor.held) == 6

        await until(all_held)
        assert set(small) <= set(executor.held)


async def test_a_quota_is_the_most_that_a_tenant_gets_and_the_oldest_go_first(rows: LiveRows) -> None:
    runs = [await rows.start_one() for _ in range(6)]
    other = await rows.value("select rt.create_tenant('quota', '')")
    async with rows.database.connection() as connection:
        claimed = await connection.fetch(
            queries("executor")["claim_oldest"], await rows.owner(), [other, rows.tenant], [5, 4], 100
        )
    assert {row["id"] for row in claimed} == set(runs[:4])


async def test_a_run_that_cannot_be_loaded_stops_no_other_and_is_given_back(
    hand: Hand, rows: LiveRows, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = await rows.start_one(wf=10**6)
    good = [await hand.start("work") for _ in range(3)]
    with caplog.at_level(logging.CRITICAL, "services.executor.owner"):
        options = {"lease": PATIENT, "clock": QuickClock()}
        async with executing(hand.database, {"work": Bodies()}, **options) as (executor, _):
            executor.hint([unknown, *good])
            await ended(rows, good)

            async def given_back() -> bool:
                live = await rows.live(unknown)
                return live is not None and live["epoch"] >= 2

            await until(given_back)
    live = await rows.live(unknown)
    assert live is not None
    assert live["fn_att"] == 0


# ---- driving


async def test_the_next_invocation_has_every_result_so_far_in_order(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work", '{"k":1}')
    script = replaying(completed("a", {"x": 1.0}), completed("b"), completed("a:1", [None]), output="done")
    async with executing(hand.database, {"work": script}) as (executor, functions):
        executor.hint([run])
        await ended(rows, [run])
    last = functions.requests[-1]
    assert last["step_order"] == ["a", "b", "a:1"]
    assert last["steps"]["a"] == {"status": "completed", "output": {"x": 1.0}}
    assert last["event"]["data"] == {"k": 1}
    assert len(functions.requests) == 4
    assert await rows.value("select output from rt.ends where run = $1", run) == '"done"'
    assert await rows.value("select epoch from rt.ends where run = $1", run) == 1, "one lease all the way"


async def test_a_failing_step_is_tried_again_after_its_backoff_by_whoever_claims_it(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    attempts: list[int] = []

    def script(request: Request) -> Answer:
        if "a" in request["steps"]:
            return {"op": "run_completed"}
        attempts.append(request["run"]["attempt"])
        return failed("a") if len(attempts) < 3 else completed("a")

    for _ in range(2):
        async with executing(hand.database, {"work": script}) as (executor, _):
            executor.hint([run])

            async def backing_off() -> bool:
                return await rows.status(run) is Status.DELAYED

            await until(backing_off)
        await hand.fire(run)
    async with executing(hand.database, {"work": script}):
        await ended(rows, [run])
    assert attempts == [0, 1, 2]
    assert await rows.value("select att from rt.steps where run = $1", run) == 3


async def test_c23_an_answer_that_cannot_be_stored_ends_its_run_and_no_other(hand: Hand, rows: LiveRows) -> None:
    await hand.declare({"name": "work", "retries": 0})
    async with rows.database.connection() as connection:
        table = f"t_{hand.tenant}.steps"
        await connection.execute(f"alter table {table} add constraint no_poison check (output <> '\"poison\"')")
    runs = [await hand.start("work", json.dumps({"poison": number == 3})) for number in range(8)]

    def script(request: Request) -> Answer:
        if "a" in request["steps"]:
            return {"op": "run_completed"}
        return completed("a", "poison" if request["event"]["data"]["poison"] else "fine")

    try:
        async with executing(hand.database, {"work": script}) as (executor, _):
            executor.hint(runs)
            await ended(rows, [run for run in runs if run is not runs[3]])
            await ended(rows, [runs[3]], Status.FAILED)
    finally:
        async with rows.database.connection() as connection:
            await connection.execute(f"alter table {table} drop constraint no_poison")
    assert json.loads(await rows.value("select error from rt.ends where run = $1", runs[3]))["name"] == "StorageError"


async def test_c5_what_is_delivered_while_a_step_runs_is_in_the_next_request(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    wait = rows.wait("e", sid="w", delay_ms=DAY_MS, seq=0)

    async def script(request: Request) -> Answer:
        if "a" not in request["steps"]:
            async with rows.database.connection() as connection:
                mine = wait._replace(run=run)
                await connection.execute(queries("engine")["open_waits"], *[[value] for value in mine])
                await connection.execute("update rt.live set steps = steps + 1 where id = $1", run)
                await connection.execute(
                    "select rt.deliver_v1($1, $2, $3, $4, $5)", [wait.id], ["c"], ['"got"'], [None], [run]
                )
            return completed("a")
        return {"op": "run_completed", "output": request["steps"].get("w")}

    async with executing(hand.database, {"work": script}) as (executor, _):
        executor.hint([run])
        await ended(rows, [run])
    output = json.loads(await rows.value("select output from rt.ends where run = $1", run))
    assert output == {"status": "completed", "output": "got"}


# ---- letting go


async def test_o8_a_drain_lets_the_step_end_and_gives_the_run_back_without_an_attempt(
    hand: Hand, rows: LiveRows
) -> None:
    run, untouched = await hand.start("work"), None
    gate = Gate(completed("a"))
    async with executing(hand.database, {"work": gate}) as (executor, functions):
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        draining = asyncio.create_task(executor.drain())
        untouched = await hand.start("work")
        executor.hint([untouched])
        gate.open.set()
        await draining
        assert len(executor.held) == 0
        assert len(functions.requests) == 1
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["epoch"], live["rev"], live["steps"]) == ("q", None, 2, 1, 1)
    assert (live["fn_att"], live["att"]) == (0, 0)
    assert await rows.status(untouched) is Status.QUEUED
    assert await rows.value("select count(*) from rt.owner") == 0


async def test_o8_what_is_still_held_at_the_end_goes_back_without_an_attempt(hand: Hand, rows: LiveRows) -> None:
    runs = [await hand.start("work") for _ in range(5)]
    async with executing(hand.database, {"work": Gate()}) as (executor, functions):
        executor.hint(runs)
        await functions.until(lambda: len(functions.requests) == 5)
    for run in runs:
        live = await rows.live(run)
        assert live is not None
        assert (live["st"], live["owner"], live["fn_att"], live["att"]) == ("q", None, 0, 0)
    assert len(functions.stopped) == 5


async def test_c18_a_dead_owner_drops_everything_and_its_late_answers_count_for_nothing(
    hand: Hand, rows: LiveRows
) -> None:
    run = await hand.start("work")
    functions = ScriptedFunctions({"work": Gate(completed("late"))})
    executor = make_incarnation(hand.database, functions, lease=QUICK)
    async with living(executor) as life:
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        await rows.rows("update rt.owner set dead = true where id = $1 returning id", executor.owner.id)
        await rows.rows("select * from rt.rescue_v1(100)")
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup) as raised:
                await life
        assert raised.value.subgroup(OwnerLost) is not None

        async def stopped() -> bool:
            return len(functions.stopped) == 1

        await until(stopped)
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["fn_att"]) == ("q", 1), "WorkerLost is an attempt of the function"
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0


# ---- cancelling


class Telling(Recorder):
    """Passes cancel hints on to an executor, as the bus does."""

    def __init__(self, executor: Incarnation) -> None:
        super().__init__()
        self._executor = executor

    def publish_cancel(self, owner: int, run_ids: Sequence[UUID]) -> None:
        assert owner == self._executor.owner.id
        self._executor.abandon(run_ids)


async def test_the_invocation_of_a_cancelled_run_is_stopped(hand: Hand, rows: LiveRows) -> None:
    run, other = await hand.start("work"), await hand.start("work")
    gate = Gate({"op": "run_completed"})
    async with executing(hand.database, {"work": gate}) as (executor, functions):
        executor.hint([run, other])
        await functions.until(lambda: len(functions.requests) == 2)
        await RunCanceller(hand.database, Hints(Telling(executor))).cancel(hand.tenant, run)

        async def stopped() -> bool:
            return functions.stopped == [ulid_text(run)] and list(executor.held) == [other]

        await until(stopped)
        gate.open.set()
        await ended(rows, [other])
    assert await rows.status(run) is Status.CANCELLED


async def test_c1_an_answer_that_comes_after_a_cancel_is_discarded_also_when_nobody_was_told(
    hand: Hand, rows: LiveRows
) -> None:
    run = await hand.start("work")
    gate = Gate(completed("late"))
    async with executing(hand.database, {"work": gate}) as (executor, functions):
        executor.hint([run])
        await functions.until(lambda: len(functions.requests) == 1)
        await hand.cancel(run)
        gate.open.set()

        async def dropped() -> bool:
            return not executor.held

        await until(dropped)
    assert await rows.status(run) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 0
    assert len(functions.requests) == 1


# ---- dying


class Crash:
    """Stops for ever at the `count`-th time that a commit point is reached; `reached` says that it was."""

    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._left = count
        self.reached = asyncio.Event()

    async def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left <= 0:
                self.reached.set()
                await asyncio.Event().wait()


@pytest.mark.parametrize("point", ["before commit", "after commit", "before effects"])
async def test_case_22_a_crash_at_any_commit_point_loses_nothing_and_repeats_only_what_was_not_stored(
    hand: Hand, rows: LiveRows, point: str
) -> None:
    runs = [await hand.start("work") for _ in range(21)]
    bodies = Bodies()
    crash = Crash(point, count=12)
    first = make_incarnation(hand.database, ScriptedFunctions({"work": bodies}), probe=crash, slots=21)
    await first.owner.register()
    life = asyncio.create_task(first.run())
    first.hint(runs)
    await asyncio.wait_for(crash.reached.wait(), 20)
    await kill(hand.database, first, life)
    stored = {(row["run"], row["sid"]) for row in await rows.rows("select run, sid from rt.steps")}
    executed = dict(bodies.executed)
    await rows.rows("update rt.owner set dead = true where id = $1 returning id", first.owner.id)
    await rows.rows("select * from rt.rescue_v1(100)")
    async with executing(hand.database, {"work": bodies}):
        await ended(rows, runs)
    for key, times in bodies.executed.items():
        allowed = 1 if key in stored or key not in executed else 2
        assert times <= allowed, "what was stored before the crash is not executed again"
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", runs) == 42
    assert await rows.value("select count(*) from rt.live") == 0


async def test_a_wait_hands_the_run_to_whoever_claims_it_after_the_event(hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    script = replaying(completed("a"), wait_for_event("w", "paid"), completed("b"))
    async with executing(hand.database, {"work": script}) as (executor, _):
        executor.hint([run])

        async def waits() -> bool:
            return await rows.status(run) is Status.WAITING

        await until(waits)
    await hand.send("paid", '{"n":1}')
    async with executing(hand.database, {"work": script}) as (_, functions):
        await ended(rows, [run])
    first: dict[str, Any] = functions.requests[0]
    assert first["step_order"] == ["a", "w"]
    assert first["steps"]["w"]["output"]["data"] == {"n": 1}


class TestClaimAndLoad:
    """What is stored of a run is read in the statement that claims it, unless the run has moved meanwhile."""

    QUERY = tenant_query("executor", "claim_and_load", 0)

    async def claimed(self, hand: Hand, run: UUID, query: str = "") -> tuple[asyncpg.Record, Lease]:
        owner = await LiveRows(hand.database, hand.tenant).owner()
        query = (query or self.QUERY).replace("t_0.", f"t_{hand.tenant}.")
        async with hand.database.connection() as connection:
            (row,) = await connection.fetch(query, owner, [run], 1, hand.tenant)
            (lease,) = await load_leases(connection, DefinitionsCache(None), [row])
        return row, lease

    async def waiting(self, hand: Hand) -> UUID:
        await hand.declare({"name": "work"})
        run = await hand.start("work", '{"n":1}')
        await hand.answer(run, StepCompleted(id="a", name="a", output='"one"'))
        await hand.fail(run)
        await hand.fire(run)
        await hand.answer(run, WaitForEvent(id="go", name="go", event="go", timeout_ms=DAY_MS))
        async with hand.database.connection() as connection:
            await connection.execute(
                "insert into rt.wait (id, run, tenant, kind, sid, seq, event, name_h, path_h, val_h) "
                "values (gen_random_uuid(), $1, $2, 'e', 'no', 9, 'no', $3, 0, 1)",
                run,
                hand.tenant,
                name_hash("no"),
            )
        await hand.send("go")
        return run

    async def test_it_reads_what_a_look_afterwards_does(self, hand: Hand) -> None:
        run = await self.waiting(hand)
        row, lease = await self.claimed(hand, run)
        assert row["version"] is not None
        async with hand.database.connection() as connection:
            live = await connection.fetch("select * from rt.live where id = $1", run)
            (again,) = await load_leases(connection, DefinitionsCache(None), live)
        assert lease.memo.steps == again.memo.steps
        assert (lease.memo.order, lease.open_steps) == ('"a","go"', {"no": "e"})
        names = ("source", "event", "test", "parent", "trace", "started_ms", "steps", "size", "attempts", "rev", "mail")
        assert [getattr(lease, name) for name in names] == [getattr(again, name) for name in names]
        assert lease.reached_ms <= again.reached_ms

    async def test_what_is_delivered_after_the_statement_began_is_read_apart(self, hand: Hand, rows: LiveRows) -> None:
        run = await self.waiting(hand)
        held_up = self.QUERY.replace(
            "with c as materialized (select * from rt.claim_hinted_v1($1, $2, $3))",
            "with w as materialized (select length(pg_advisory_xact_lock(17)::text) as nothing), c as materialized "
            "(select f.* from w cross join lateral rt.claim_hinted_v1($1, $2, $3 + w.nothing) f)",
        )
        assert held_up != self.QUERY
        async with hand.database.transaction() as connection:
            await connection.execute("select pg_advisory_xact_lock(17)")
            claiming = asyncio.create_task(self.claimed(hand, run, held_up))
            await until(
                lambda: rows.value("select count(*) > 0 from pg_locks where not granted and locktype = 'advisory'")
            )
            await hand.send("no")
        row, lease = await claiming
        assert row["owner"] is not None
        assert row["version"] is None
        assert (lease.memo.order, lease.open_steps) == ('"a","go","no"', {})

    async def test_a_run_of_another_tenant_is_read_apart(self, hand: Hand) -> None:
        run = await self.waiting(hand)
        owner = await LiveRows(hand.database, hand.tenant).owner()
        query = self.QUERY.replace("t_0.", f"t_{hand.tenant}.")
        async with hand.database.connection() as connection:
            (row,) = await connection.fetch(query, owner, [run], 1, hand.tenant + 1)
            assert row["version"] is None
            (lease,) = await load_leases(connection, DefinitionsCache(None), [row])
        assert lease.memo.order == '"a","go"'
