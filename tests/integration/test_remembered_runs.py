"""Executors and workers go on with runs that they let go of, by what is remembered of them: nothing is read."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import Request, completed, failed, replaying, sleep, wait_for_event
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until
from tests.support.worker import HandWorker, StreamExecutor, stream_executor, worker

__all__ = ["database", "postgres_url", "rows"]

# What is read of a run, and with it only what is read: a mark in what is stored tells it from what is remembered.
_MARKED = """update rt.steps set output = '"read"' where run = $1 and sid = 'a' returning 1"""
_TRIES = 20
"""A look may find a run before its hint is heard, and reads it."""


async def waits_and_is_marked(rows: LiveRows, run: UUID) -> None:
    await until(lambda: rows.value("select st = 'w' from rt.live where id = $1", run))
    await rows.value(_MARKED, run)


async def test_an_executor_goes_on_without_reading_what_it_let_go_of(hand: Hand, rows: LiveRows) -> None:
    requests: list[Request] = []
    script = replaying(completed("a", "kept"), wait_for_event("go", "go"))

    def telling(request: Request) -> Any:
        requests.append(request)
        return script(request)

    async with executing(hand.database, {"work": telling}) as (executor, _):
        for _ in range(_TRIES):
            run = await hand.start("work")
            executor.hint([run])
            await waits_and_is_marked(rows, run)
            await hand.send("go", '{"n":7}')
            executor.hint([run])
            await until(lambda run=run: rows.value("select count(*) = 1 from rt.ends where run = $1", run))
            steps = requests[-1]["steps"]
            assert steps["go"]["output"]["data"] == {"n": 7}
            if steps["a"]["output"] == "kept":
                return
    pytest.fail("each time the run was read")


async def started(hand: Hand, executor: StreamExecutor, one: HandWorker, op: dict[str, Any], *, at_once: bool) -> UUID:
    """A run of the worker's that rests over this op, its second."""
    run = await hand.start("work")
    executor.incarnation.hint([run])
    execute, _ = await one.execute()
    await one.op(execute.key, 1, completed("a", "kept"))
    await one.ack()
    await one.op(execute.key, 2, op, last=at_once)
    await one.ack()
    if not at_once:
        await one.end(execute.key)
    return run


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_worker_goes_on_with_a_run_that_was_not_read(hand: Hand, rows: LiveRows, at_once: bool) -> None:
    """`at_once`: the invocation ends with the op, or when its worker says that nothing is left to do."""
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        for _ in range(_TRIES):
            run = await started(hand, executor, one, wait_for_event("go", "go"), at_once=at_once)
            await waits_and_is_marked(rows, run)
            await hand.send("go", '{"n":7}')
            executor.incarnation.hint([run])
            again, request = await one.execute()
            live = await rows.live(run)
            assert live is not None
            assert (again.key.epoch, str(live["affinity"]), live["given"]) == (
                live["epoch"],
                one.session,
                live["epoch"],
            )
            await one.op(again.key, 1, {"op": "run_completed", "output": 1}, last=True)
            await one.ack()
            assert request["steps"]["go"]["output"]["data"] == {"n": 7}
            if request["steps"]["a"]["output"] == "kept":
                return
    pytest.fail("each time the run was read")


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_worker_goes_on_with_a_run_that_has_slept_and_was_not_read(
    hand: Hand, rows: LiveRows, at_once: bool
) -> None:
    async with stream_executor(hand.database, hand.tenant, own_timers=True) as executor, worker(executor) as one:
        for _ in range(_TRIES):
            run = await started(hand, executor, one, sleep("z", "300ms"), at_once=at_once)
            await rows.value(_MARKED, run)
            again, request = await one.execute()
            await one.op(again.key, 1, {"op": "run_completed", "output": 1}, last=True)
            await one.ack()
            assert request["steps"]["z"] == {"status": "completed", "output": None}
            if request["steps"]["a"]["output"] == "kept":
                return
    pytest.fail("each time the run was read")


@pytest.mark.parametrize("by_workers", [True, False])
@pytest.mark.parametrize(
    "rests",
    [sleep("z", "50s"), wait_for_event("z", "go", timeout="1h"), failed("z", retry_after="50s")],
    ids=["sleep", "event", "backoff"],
)
async def test_a_backoff_that_is_left_of_a_step_with_a_result_ends_no_other_wait(
    hand: Hand, rows: LiveRows, rests: dict[str, Any], by_workers: bool
) -> None:
    """The step was executed again before its time, as where HTTP takes over from a worker."""
    await hand.declare({"name": "work", "retries": 9})
    async with stream_executor(hand.database, hand.tenant, own_timers=True) as executor, worker(executor) as one:
        run = await hand.start("work")
        executor.incarnation.hint([run])
        execute, _ = await one.execute()
        for number, op in enumerate((failed("a", retry_after="1500ms"), completed("a")), start=1):
            await one.op(execute.key, number, op)
            await one.ack()
        await one.op(execute.key, 3, rests, last=True)
        await one.ack()
        await rows.value("update rt.live set pooled = $2 where id = $1 returning 1", run, by_workers)
        again, request = await one.execute()
        assert (list(again.open_steps), list(request["steps"])) == (["z"], ["a"])
        await one.op(again.key, 1, {"op": "run_completed", "output": 1}, last=True)
        await one.ack()


async def test_no_more_of_those_that_workers_serve_wake_at_once_than_there_is_room_for(
    hand: Hand, rows: LiveRows
) -> None:
    """Whatever credit their workers have."""
    async with (
        stream_executor(hand.database, hand.tenant, own_timers=True, slots=2) as executor,
        worker(executor) as one,
    ):
        for _ in range(6):
            executor.incarnation.hint([await hand.start("work")])
            execute, _ = await one.execute()
            await one.op(execute.key, 1, sleep("z", "3s"), last=True)
            await one.ack()
        await rows.value("update rt.wait set due_at = rt.now() + interval '3s' where kind = 's' returning 1")
        await until(lambda: rows.value("select not exists (select from rt.wait where kind = 's')"))
        ended = 0
        while ended < 6:
            execute, _ = await one.execute()
            assert await rows.value("select count(*) from rt.live where st = 'r'") <= 2
            assert len(executor.incarnation.held) <= 2
            await one.op(execute.key, 1, {"op": "run_completed", "output": 1}, last=True)
            await one.ack()
            ended += 1


async def test_what_a_held_run_does_after_its_wait_is_known_when_it_goes_on(hand: Hand, rows: LiveRows) -> None:
    """A worker that goes on beside an open wait: its run is not remembered as it was when the wait began."""
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor) as one:
        run = await hand.start("work")
        executor.incarnation.hint([run])
        execute, _ = await one.execute()
        await one.op(execute.key, 1, wait_for_event("go", "go"))
        await one.ack()
        await one.op(execute.key, 2, wait_for_event("too", "too"))
        await one.ack()
        await one.end(execute.key)
        await until(lambda: rows.value("select st = 'w' from rt.live where id = $1", run))
        await hand.send("too", '{"n":7}')
        executor.incarnation.hint([run])
        again, request = await one.execute()
        assert list(request["steps"]) == ["too"]
        assert list(again.open_steps) == ["go"]
        await one.op(again.key, 1, {"op": "run_completed", "output": 1}, last=True)
        await one.ack()
