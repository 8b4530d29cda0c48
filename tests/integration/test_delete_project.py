"""Deleting a project against all that makes runs or lets ended ones go on: whoever wins, no run is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, NotFound, Unavailable
from services.core.domain.op import Invoke, StepCompleted
from services.core.domain.run_record import RunFilter
from services.core.engine.bulk_job import BulkJobs, BulkRequest
from services.core.engine.bulk_work import BulkWorker
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fire_due import DueSchedules
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.projects import ProjectChange, create_project, update_project
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.start_request import StartRequest
from services.core.engine.start_run import RunStarter
from services.core.engine.starts import insert_starts
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.commit_item import Fenced
from services.core.store.database import Database
from services.core.store.workflows import definitions_version
from services.scheduler.delete_project import ProjectDeleter
from tests.support.engine import slow_commits
from tests.support.hand import Hand, playing
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

HINTS = Hints(NullPublisher())
SHIP = {"name": "ship", "triggers": [{"event": "paid"}, {"cron": "* * * * *"}], "cancel_on": [{"event": "stop"}]}
PART = {"name": "part"}


class Doomed:
    """A project that is about to be deleted, and everything that acts on its runs."""

    def __init__(self, database: Database, sealer: Sealer, tenant: int, hand: Hand, rows: LiveRows) -> None:
        definitions = DefinitionsCache(None)
        self.database = database
        self.sealer = sealer
        self.tenant = tenant
        self.hand = hand
        self.rows = rows
        self.ids = UlidFactory(SystemClock(), random.Random())
        self.caller = Caller(tenant=tenant, token_id="t", abilities=frozenset())
        self.retrier = RunRetrier(database, definitions, HINTS)
        self.replayer = RunReplayer(database, definitions, HINTS, self.ids)
        self.starter = RunStarter(database, definitions, HINTS, self.ids)
        self.schedules = DueSchedules(database, definitions, HINTS, self.ids)
        self.jobs = BulkJobs(database, self.ids, SystemClock(), lambda: None)
        self.worker = BulkWorker(database, definitions, HINTS, self.ids)
        self.begun = asyncio.Event()
        self.deleter = ProjectDeleter(database, HINTS, lambda _: self.begun.set())

    async def delete(self) -> None:
        """Delete it."""
        await self.deleter.delete(self.caller, "doomed")

    async def start(self) -> UUID:
        """A new run of the workflow `ship`."""
        wanted = StartRequest(tenant=self.tenant, project="doomed", workflow="ship")
        return (await self.starter.start(wanted)).run

    async def cancelled(self, count: int = 1) -> list[UUID]:
        """Runs that may be retried."""
        runs = [await self.hand.start("ship") for _ in range(count)]
        for run in runs:
            await self.hand.cancel(run)
        return sorted(runs)

    async def cron_is_due(self) -> None:
        """The next tick of `ship` has come."""
        await self.rows.value("update rt.cron set next_at = rt.now() - interval '1 ms' returning 1")

    async def bulk(self, action: str) -> UUID:
        """A job over all runs of the project."""
        job, _ = await self.jobs.start(
            BulkRequest(caller=self.caller, project="doomed", action=action, wanted=RunFilter(), trace=None)
        )
        assert job.id is not None
        await self.rows.value("update rt.bulk_job set turn_at = rt.now() returning 1")
        return job.id

    async def left(self) -> dict[str, int]:
        """What there is of any run, by table."""
        tables = ("rt.live", "rt.wait", "rt.idem", "rt.runs", "rt.ends", "rt.steps", "rt.attempts", "rt.cron")
        counts = {table: int(await self.rows.value(f"select count(*) from {table}")) for table in tables}
        return {table: count for table, count in counts.items() if count}

    @contextlib.asynccontextmanager
    async def held_up(self, run: UUID) -> AsyncIterator[None]:
        """The deletion has begun and stands before this ended run, which somebody holds."""
        async with self.database.transaction() as connection:
            await connection.fetch(f"select from t_{self.tenant}.runs where id = $1 for key share", run)
            deleting = asyncio.create_task(self.delete())
            await until(self._waits)
            yield
        await deleting

    async def _waits(self) -> bool:
        sql = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%runs%')"
        return bool(await self.rows.value(sql))


@pytest.fixture
async def doomed(database: Database, sealer: Sealer, tenant: int, rows: LiveRows) -> AsyncIterator[Doomed]:
    async with database.transaction() as connection:
        await create_project(connection, sealer, tenant, "doomed", ProjectChange())
    async with playing(database, tenant, "doomed") as hand:
        await hand.declare(SHIP, PART)
        yield Doomed(database, sealer, tenant, hand, rows)


async def test_a_retry_of_a_run_that_is_about_to_be_deleted_is_refused(doomed: Doomed) -> None:
    first, second = await doomed.cancelled(2)
    async with doomed.held_up(first):
        with pytest.raises(Conflict) as refused:
            await doomed.retrier.retry(doomed.tenant, second)
    assert refused.value.reason == "PROJECT_DELETED"
    assert await doomed.left() == {}
    with pytest.raises(NotFound):
        await doomed.retrier.retry(doomed.tenant, second)


async def test_a_bulk_job_lets_no_run_of_the_project_go_on(doomed: Doomed) -> None:
    first, *_ = await doomed.cancelled(5)
    for action in ("retry", "replay"):
        await doomed.bulk(action)
    async with doomed.held_up(first):
        for _ in range(2):
            assert await doomed.worker.work() is not None
    found = await doomed.rows.rows("select action, succeeded, skipped, failed from rt.bulk_job order by action desc")
    assert [tuple(row) for row in found] == [("retry", 0, 5, 0), ("replay", 0, 0, 5)]
    assert await doomed.left() == {}


async def test_whoever_asked_before_the_deletion_began_is_waited_for(doomed: Doomed) -> None:
    """A retry, a start, an event, a tick and a replay, each of which stands in its COMMIT."""
    single, *many = await doomed.cancelled(4)
    await doomed.cron_is_due()
    under_way: list[Callable[[], Awaitable[Any]]] = [
        lambda: doomed.retrier.retry(doomed.tenant, single),
        doomed.start,
        lambda: doomed.hand.send("paid"),
        doomed.schedules.fire,
        lambda: doomed.replayer.replay(ReplayRequest(tenant=doomed.tenant, run=many[0])),
    ]
    for work in under_way:
        async with slow_commits(doomed.database, "rt.live") as stopped:
            working = asyncio.create_task(_outcome(work()))
            await stopped()
            deleting = asyncio.create_task(doomed.delete())
            await doomed.begun.wait()
            assert not deleting.done()
        assert await working is None
        await deleting
        assert await doomed.left() == {}
        doomed.begun.clear()
        await _made_again(doomed)
        single, *many = await doomed.cancelled(4)
        await doomed.cron_is_due()


async def test_a_bulk_retry_that_is_committed_just_then_is_waited_for(doomed: Doomed) -> None:
    await doomed.cancelled(4)
    await doomed.bulk("retry")
    async with slow_commits(doomed.database, "rt.live") as stopped:
        working = asyncio.create_task(doomed.worker.work())
        await stopped()
        deleting = asyncio.create_task(doomed.delete())
        await doomed.begun.wait()
    await asyncio.gather(working, deleting)
    assert await doomed.left() == {}


async def test_a_start_that_has_read_the_definitions_before_is_refused_however_late(doomed: Doomed) -> None:
    """Its transaction sees the workflow as it was, and asks only when nothing of the project is left."""
    entry = doomed.rows.start_row(
        wf=await doomed.rows.value("select id from rt.workflows where name = 'ship'"),
        project=await doomed.rows.value("select id from rt.projects where slug = 'doomed'"),
    )

    async def start_late() -> None:
        async with doomed.database.transaction() as connection:
            await definitions_version(connection, doomed.tenant)
            await doomed.delete()
            await insert_starts(connection, [entry], [])

    with pytest.raises(Unavailable):
        await start_late()
    assert await doomed.left() == {}


async def test_a_child_that_is_started_meanwhile_ends_with_its_parent(doomed: Doomed) -> None:
    parent = await doomed.hand.start("ship")
    await doomed.hand.answer(parent, StepCompleted(id="a", name="a", output="1"))
    async with slow_commits(doomed.database, "rt.live") as stopped:
        invoking = asyncio.create_task(
            _outcome(doomed.hand.answer(parent, Invoke(id="i", name="i", workflow="part", data="{}")))
        )
        await stopped()
        deleting = asyncio.create_task(doomed.delete())
        await doomed.begun.wait()
    assert await invoking is None
    await deleting
    assert await doomed.left() == {}


async def test_nothing_is_changed_in_a_project_whose_deletion_has_begun(doomed: Doomed) -> None:
    (run,) = await doomed.cancelled()
    declarer = Declarer(doomed.database, lambda _: None)
    async with doomed.held_up(run):
        with pytest.raises(Conflict) as refused:
            await declarer.declare(doomed.tenant, "doomed", b'{"workflows": [{"name": "ship"}]}')
        assert refused.value.reason == "PROJECT_DELETED"
        with pytest.raises(Conflict):
            await declarer.set_active(doomed.tenant, "doomed", "ship", True)
        async with doomed.database.transaction() as connection:
            with pytest.raises(Conflict):
                await update_project(connection, doomed.sealer, doomed.tenant, "doomed", ProjectChange(name="x"))
        with pytest.raises(Conflict, match="archived"):
            await doomed.start()
        assert (await doomed.hand.send("paid")).runs == ()
    assert await doomed.left() == {}


async def test_a_declaration_that_waited_for_the_beginning_of_a_deletion_sees_it(doomed: Doomed) -> None:
    """It holds the project's row only after the deletion has committed that it began."""
    await doomed.cancelled()
    declarer = Declarer(doomed.database, lambda _: None)
    async with slow_commits(doomed.database, "rt.deleted_project") as stopped:
        deleting = asyncio.create_task(doomed.delete())
        await stopped()
        declaring = asyncio.create_task(
            _outcome(declarer.declare(doomed.tenant, "doomed", b'{"workflows": [{"name": "ship"}]}'))
        )
        await until(lambda: _lock_waiters(doomed.rows, 2))
    assert isinstance(await declaring, Conflict | NotFound)
    await deleting
    assert await doomed.left() == {}


async def test_a_deletion_that_was_cut_off_is_finished_by_asking_again(doomed: Doomed) -> None:
    (run,) = await doomed.cancelled()
    async with doomed.database.transaction() as connection:
        await connection.fetch(f"select from t_{doomed.tenant}.runs where id = $1 for key share", run)
        deleting = asyncio.create_task(doomed.delete())
        await until(lambda: _lock_waiters(doomed.rows, 1))
        deleting.cancel()
        await asyncio.wait({deleting})
    with pytest.raises(Conflict):
        await doomed.retrier.retry(doomed.tenant, run)
    await doomed.delete()
    assert await doomed.left() == {}


async def test_everything_at_once_leaves_nothing(doomed: Doomed) -> None:
    runs = await doomed.cancelled(60)
    await doomed.bulk("retry")
    stop = asyncio.Event()

    async def hammer(work: Callable[[], Awaitable[Any]]) -> None:
        while not stop.is_set():
            await _outcome(work())

    async def retry() -> None:
        await doomed.retrier.retry(doomed.tenant, random.choice(runs))

    async def parent() -> None:
        run = await doomed.start()
        await doomed.hand.answer(run, Invoke(id="i", name="i", workflow="part", data="{}"))

    works = [retry, retry, doomed.start, parent, lambda: doomed.hand.send("paid"), doomed.worker.work]
    hammers = [asyncio.create_task(hammer(work)) for work in works]
    await until(lambda: _started(doomed))
    try:
        async with asyncio.timeout(60):
            await doomed.delete()
    finally:
        stop.set()
        await asyncio.gather(*hammers)
    assert await doomed.left() == {}


async def _started(doomed: Doomed) -> bool:
    return bool(await doomed.rows.value("select count(*) > 5 from rt.live"))


async def _lock_waiters(rows: LiveRows, count: int) -> bool:
    return bool(await rows.value("select count(*) >= $1 from pg_locks where not granted", count))


async def _outcome(work: Awaitable[Any]) -> Exception | None:
    """The error, if it is one that a caller may get."""
    try:
        await work
    except (Conflict, NotFound, Fenced, AssertionError) as refused:
        return refused
    return None


async def _made_again(doomed: Doomed) -> None:
    async with doomed.database.transaction() as connection:
        await create_project(connection, doomed.sealer, doomed.tenant, "doomed", ProjectChange())
    await doomed.hand.declare(SHIP, PART)
