"""Projects that workers alone serve: their runs wait until an executor has a worker with room, in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.runtime.ids import ulid_text
from services.core.store.projects import get_project, set_endpoint
from services.executor.worker_stream.outbox import Outbox
from services.executor.worker_stream.sessions import Offers, WorkerSessions
from services.scheduler.duties.rehint import Rehint
from tests.support.engine import HandClock, ScriptedFunctions
from tests.support.fake_function import completed, failed, replaying, wait_for_event
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder
from tests.support.waiting import until
from tests.support.worker import HandWorker, StreamExecutor, stream_executor, worker

DONE = {"op": "run_completed", "output": 7}
OTHER = 999
"""A project that is no pool, and a workflow that nobody knows."""


async def comes_to(rows: LiveRows, run: UUID, status: Status) -> None:
    async def is_there() -> bool:
        return await rows.status(run) is status

    await until(is_there)


async def known(hand: Hand, *workflows: str) -> None:
    """A worker has declared these workflows, and is gone."""
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor, *workflows):
        pass


async def rests(rows: LiveRows, run: UUID) -> None:
    """Nobody has touched the run."""
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["epoch"], live["att"], live["pooled"]) == ("q", 0, 0, True)


async def answer(one: HandWorker) -> str:
    """Execute the next run to its end; which one it was."""
    execute, _ = await one.execute()
    await one.op(execute.key, 1, DONE, last=True)
    await one.ack()
    return execute.key.run_id


def looking(executor: StreamExecutor, rows: LiveRows) -> Callable[[], Awaitable[None]]:
    """Waits until the executor has looked around once more: a run that anybody may take, started now, is taken."""

    async def look() -> None:
        other = await rows.start_one(project=OTHER, wf=OTHER)
        await until(lambda: _gone(rows, other))

    return look


async def _gone(rows: LiveRows, run: UUID) -> bool:
    live = await rows.live(run)
    return live is None or live["st"] != "q"


async def test_without_a_worker_a_run_stays_queued_and_is_not_an_attempt(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    async with stream_executor(hand.database, hand.tenant) as executor:
        run = await hand.start("work")
        executor.incarnation.hint([run])
        await looking(executor, rows)()
        await rests(rows, run)
        async with worker(executor) as one:
            assert await answer(one) == ulid_text(run)
            await comes_to(rows, run, Status.COMPLETED)


async def test_a_hint_that_reaches_another_executor_is_passed_on(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    told = Recorder()
    async with (
        stream_executor(hand.database, hand.tenant, publisher=told) as empty,
        stream_executor(hand.database, hand.tenant) as full,
    ):
        run = await hand.start("work")
        empty.incarnation.hint([run])
        async with asyncio.timeout(10):
            while not told.pooled:
                await told.told.wait()
                told.told.clear()
        async with worker(full) as one:  # only now: it would find the run by itself
            full.incarnation.pooled(told.pooled)
            assert await answer(one) == ulid_text(run)
    live = await rows.live(run)
    assert live is None


async def test_a_worker_that_connects_is_given_the_backlog_within_its_credits(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    runs = [await hand.start("work") for _ in range(20)]
    async with stream_executor(hand.database, hand.tenant, slots=10) as executor, worker(executor, credits=3) as one:
        held = 0
        for _ in runs:
            held = max(held, len(executor.incarnation.held))
            await answer(one)
        assert held <= 3
    for run in runs:
        epoch = await rows.value("select epoch from rt.ends where run = $1", run)
        assert epoch == 1, "each was claimed once: none was taken without room and given back"


async def test_a_worker_without_room_leaves_the_slots_of_others_alone(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    for _ in range(20):
        await hand.start("work")
    async with stream_executor(hand.database, hand.tenant, slots=4) as executor, worker(executor, credits=1) as one:
        await one.execute()  # and does not answer
        other = await rows.start_one(project=OTHER, wf=OTHER)
        executor.incarnation.hint([other])
        await until(lambda: _gone(rows, other))


async def test_room_in_one_worker_is_no_room_in_another(hand: Hand, rows: LiveRows) -> None:
    async with (
        stream_executor(hand.database, hand.tenant) as executor,
        worker(executor, "work", "new", code_version=2, credits=1) as newer,
        worker(executor, "work", code_version=1, credits=5) as older,
    ):
        runs = [await hand.start("new") for _ in range(3)]
        executor.incarnation.hint(runs)
        for _ in runs:
            await answer(newer)
        assert older.heard("execute") == 0
    for run in runs:
        assert await rows.value("select epoch from rt.ends where run = $1", run) == 1


async def test_a_run_of_before_the_first_worker_is_given_back_and_waits(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    run = await hand.start("work")
    await rows.value("update rt.live set pooled = false where id = $1", run)  # as a start that did not see the worker
    async with stream_executor(hand.database, hand.tenant) as executor:
        executor.incarnation.hint([run])

        async def is_given_back() -> bool:
            live = await rows.live(run)
            return live is not None and live["st"] == "q" and live["pooled"]

        await until(is_given_back)
        assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 0
        async with worker(executor) as one:
            assert await answer(one) == ulid_text(run)


async def test_a_project_that_gets_an_endpoint_is_anybodys(hand: Hand, rows: LiveRows) -> None:
    await known(hand, "work")
    before = await hand.start("work")
    async with hand.database.transaction() as connection:
        project = await get_project(connection, hand.tenant, "default")
        await set_endpoint(connection, hand.tenant, project.id, "https://elsewhere.test/")
    after = await hand.start("work")
    told = Recorder()

    async def pending() -> int:
        return 0

    await Rehint(hand.database, Hints(told), pending).run_once()
    assert before in told.ready
    pooled = {row["id"]: row["pooled"] for row in await rows.rows("select id, pooled from rt.live")}
    assert pooled == {before: False, after: False}
    async with hand.database.transaction() as connection:
        await set_endpoint(connection, hand.tenant, project.id, None)
    assert (await rows.live(await hand.start("work")))["pooled"]  # type: ignore[index]


async def test_a_project_with_an_endpoint_prefers_its_worker_and_is_called_where_that_has_no_room(
    hand: Hand, rows: LiveRows
) -> None:
    await known(hand, "work")
    async with hand.database.transaction() as connection:
        project = await get_project(connection, hand.tenant, "default")
        await set_endpoint(connection, hand.tenant, project.id, "https://functions.test/")
        await connection.execute("update rt.defs_version set v = v + 1")
    functions = ScriptedFunctions({"work": lambda _: {"op": "run_completed", "output": "over HTTP"}})
    async with (
        stream_executor(hand.database, hand.tenant, functions=functions) as executor,
        worker(executor, credits=1) as one,
    ):
        first, second = await hand.start("work"), await hand.start("work")
        executor.incarnation.hint([first])
        execute, _ = await one.execute()
        assert await rows.value("select affinity from rt.live where id = $1", first) == UUID(one.session)
        executor.incarnation.hint([second])
        await comes_to(rows, second, Status.COMPLETED)
        await one.op(execute.key, 1, DONE, last=True)
        await one.ack()
    assert [request["run"]["id"] for request in functions.requests] == [ulid_text(second)]


async def test_a_step_in_its_backoff_is_not_executed_over_http_because_another_is_done(
    hand: Hand, rows: LiveRows
) -> None:
    await known(hand, "work")
    async with hand.database.transaction() as connection:
        project = await get_project(connection, hand.tenant, "default")
        await set_endpoint(connection, hand.tenant, project.id, "https://functions.test/")
        await connection.execute("update rt.defs_version set v = v + 1")
    functions = ScriptedFunctions({"work": replaying(completed("a"), completed("b"), output="over HTTP")})
    async with stream_executor(hand.database, hand.tenant, functions=functions) as executor:
        async with worker(executor) as one:
            run = await hand.start("work")
            executor.incarnation.hint([run])
            execute, _ = await one.execute()
            await one.op(execute.key, 1, {**failed("a"), "name": "a"})
            await one.op(execute.key, 2, {**wait_for_event("b", "paid"), "name": "b"})
            for _ in range(2):
                await one.ack()
            await one.end(execute.key)
            await comes_to(rows, run, Status.WAITING)
        await hand.send("paid")
        executor.incarnation.hint([run])
        await comes_to(rows, run, Status.DELAYED)
        assert functions.requests == []
        await hand.fire(run)
        executor.incarnation.hint([run])
        await comes_to(rows, run, Status.COMPLETED)
    assert functions.executions("a") == 1
    assert await rows.value("select count(*) from rt.attempts where run = $1", run) == 1


async def test_children_and_retried_runs_wait_for_workers_too(hand: Hand, rows: LiveRows) -> None:
    async with stream_executor(hand.database, hand.tenant) as executor, worker(executor, "work", "child") as one:
        run = await hand.start("work")
        executor.incarnation.hint([run])
        execute, _ = await one.execute()
        invoke = {"op": "invoke", "id": "c", "name": "c", "workflow": "child", "data": {}}
        await one.op(execute.key, 1, invoke, last=True)
        await one.ack()
        assert await rows.value("select pooled from rt.live where parent = $1", run)
    await hand.cancel(run)
    await rows.rows("select * from rt.retry_v1($1, $2, 4::smallint, 60000, 0, null, null)", hand.tenant, run)
    live = await rows.live(run)
    assert live is not None
    assert live["pooled"]


class TestOffers:
    def session(self, sessions: WorkerSessions, n: int, *, project: int, credits: int, ids: frozenset[int]) -> None:
        session = sessions.meet(str(UUID(int=n)), tenant=1, project=project, node="test")
        session.attach(Outbox(), credits)
        sessions.serve(session, frozenset(), ids)

    async def test_slots_are_as_many_as_the_credits_and_the_room(self) -> None:
        sessions = WorkerSessions(HandClock(), request_timeout_s=1, resume_grace_s=1)
        self.session(sessions, 1, project=1, credits=3, ids=frozenset({7, 8}))
        self.session(sessions, 2, project=1, credits=1, ids=frozenset({7, 8}))
        self.session(sessions, 3, project=2, credits=9, ids=frozenset({9}))
        only = sessions.offers({7}, 100)
        assert only == Offers([7], [only.groups[0]], [only.groups[0]] * 4, only.slot_sessions)
        assert sorted(each.int for each in only.slot_sessions) == [1, 1, 1, 2]
        everything = sessions.offers(None, 8)
        assert len(everything.slot_sessions) == 8
        assert sorted(everything.workflows) == [7, 8, 9]
        assert len(sessions.offers(None, 5).slot_sessions) <= 5

    async def test_who_has_no_credit_offers_nothing(self) -> None:
        sessions = WorkerSessions(HandClock(), request_timeout_s=1, resume_grace_s=1)
        self.session(sessions, 1, project=1, credits=1, ids=frozenset({7}))
        session = next(iter(sessions))
        assert sessions.has_room({7})
        session.execute(("r", 1, 1), workflow="w", request="{}", traceparent=None, open_steps=())
        assert not sessions.has_room({7})
        assert sessions.offers(None, 10) == Offers()
        session.grant(2)
        assert sessions.room_for(7) == 2
        session.drain()
        assert sessions.room_for(7) == 0
