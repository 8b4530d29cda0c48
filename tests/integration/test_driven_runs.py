"""Executors over a real Postgres: what a held run is asked next, and what becomes of its answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from services.core.domain.run import Status
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.hints import Hints
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries
from services.executor.incarnation import Incarnation
from tests.support.claiming import Gate, ended
from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import Answer, Request, completed, failed, replaying, wait_for_event
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]


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
