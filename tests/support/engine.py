"""The engine's parts put together for one test module: a database that is emptied between tests, and executors whose
functions are scripts in memory.

    async with executing(database, tenant, {"work": replaying(completed("a"))}) as executor:
        ...
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.core.domain.op import FunctionFault
from services.core.domain.run import Limits
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher, Publisher
from services.core.engine.regate import Regater
from services.core.engine.run_traces import RunTraces
from services.core.engine.wait_room import WaitRoom
from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.off_loop import OffLoop
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings, LeaseSettings, WorkflowLimits
from services.core.runtime.telemetry import Telemetry
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.core.store.pipeline import Pipeline
from services.executor.aftermath import Aftermath
from services.executor.arriving import Arriving
from services.executor.claim import Claimer
from services.executor.commits import Commits, Probe
from services.executor.current_definitions import CurrentDefinitions
from services.executor.dispatch import Dispatcher
from services.executor.drive import Driver
from services.executor.function_client import FunctionClient, RawAnswer, RequestKind, Target
from services.executor.incarnation import Incarnation
from services.executor.invoke import Invoker
from services.executor.lease import Lease
from services.executor.own_timers import OwnTimers
from services.executor.owner import Owner
from services.executor.slots import Slots
from services.executor.spans import ExecutorSpans
from services.executor.worker_stream.adoption import Adoption
from services.executor.worker_stream.affinities import Affinities
from services.executor.worker_stream.deliveries import Deliveries
from services.executor.worker_stream.drive import StreamDriver
from services.executor.worker_stream.pool_claims import PoolClaims
from services.executor.worker_stream.sessions import WorkerSessions
from tests.support.fake_function import Request, Script
from tests.support.postgres import Databases
from tests.support.tenancy import ENCRYPTION_KEY
from tests.support.waiting import until

EMPTIED = [
    *("live", "gate_rule", "wait", "wait_path", "mark", "event_ids", "idem", "cron", "cron_fire", "usage_delta"),
    *("owner", "pool"),
    *("runs", "ends", "steps", "attempts", "events", "usage", "workflows"),
]


@pytest.fixture(scope="module")
def postgres_url(databases: Databases) -> Iterator[str]:
    """A database for the whole module, cloned from the migrated template."""
    url = databases.make(of=databases.migrated())
    yield url
    databases.drop(url)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    """An open pool on the module's database, without the workflows, runs and events of earlier tests."""
    pool = Database(postgres_url, name="test", size=16)
    await pool.open()
    async with pool.connection() as connection:
        emptied = ";".join(f"delete from rt.{table}" for table in EMPTIED)
        await connection.execute(
            f"{emptied}; update rt.projects set defs_source = null where defs_source = 'worker';"
            "update rt.defs_version set v = v + 1"
        )
    yield pool
    await pool.close()


class HandClock:
    """Stands still until a test turns it."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def unix_ms(self) -> int:
        return int(self.seconds * 1_000)

    def monotonic(self) -> float:
        return self.seconds


class QuickClock(SystemClock):
    """Time passes twenty times as fast for whoever asks."""

    def monotonic(self) -> float:
        return 20 * super().monotonic()


PATIENT = LeaseSettings(ttl_s=600.0, heartbeat_s=0.05)
"""A lease that outlasts a `QuickClock`."""


@dataclass
class ScriptedFunctions:
    """`FunctionClient` over scripts in memory, one a workflow; `tests.support.fake_function` says what they answer."""

    scripts: Mapping[str, Script]
    requests: list[Request] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    """Run ids of invocations that were cancelled."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """See `FunctionClient.call`."""
        request = json.loads(request_text)
        await self._note(self.requests, request)
        try:
            async with asyncio.timeout(timeout_s):
                answer: Any = self.scripts[request["workflow"]](request)
                if isinstance(answer, Awaitable):
                    answer = await answer
        except TimeoutError:
            raise FunctionFault("FunctionTimeout", "no answer in time") from None
        except asyncio.CancelledError:
            self.stopped.append(request["run"]["id"])
            raise
        ops = answer if isinstance(answer, list) else [answer]
        return RawAnswer(200, json.dumps({"runr_workflow": "v1", "ops": ops}).encode())

    async def until(self, holds: Callable[[], bool], guard_s: float = 15.0) -> None:
        """Wait until the requests are as the test wants them."""
        async with asyncio.timeout(guard_s), self.changed:
            await self.changed.wait_for(holds)

    def executions(self, step_id: str) -> int:
        """Requests in which this step had no result and every step before it had: its body ran once for each."""
        return sum(step_id not in request["steps"] for request in self.requests)

    async def _note(self, notes: list[Request], request: Request) -> None:
        async with self.changed:
            notes.append(request)
            self.changed.notify_all()


def make_owner(database: Database, *, lease: LeaseSettings | None = None, clock: Clock | None = None) -> Owner:
    """An owner that is not registered yet."""
    return Owner(database.dsn, node="test", settings=lease or LeaseSettings(), clock=clock or SystemClock())


def make_incarnation(
    database: Database,
    client: FunctionClient,
    *,
    slots: int = 64,
    publisher: Publisher | None = None,
    lease: LeaseSettings | None = None,
    request_timeout_s: float = 30.0,
    probe: Probe | None = None,
    definitions: DefinitionsCache | None = None,
    clock: Clock | None = None,
    sessions: WorkerSessions | None = None,
    own_timers: bool = False,
) -> Incarnation:
    """One life of an executor, as its composition root makes it. Without `own_timers` it fires none itself: time passes
    as the test says.
    """
    clock = clock or SystemClock()
    ids = UlidFactory(clock, random.Random())
    hints = Hints(publisher or NullPublisher())
    owner = make_owner(database, lease=lease, clock=clock)
    arriving = Arriving()
    pipeline = Pipeline(database.dsn, owner=owner.id)
    defs = definitions or DefinitionsCache(Sealer(ENCRYPTION_KEY))
    acceptor = EventAcceptor(database, defs, hints, ids)
    aftermath = Aftermath(database, hints, acceptor, clock)
    spans = ExecutorSpans(Telemetry.off())
    settings = FunctionSettings(domain="functions.test", request_timeout_s=request_timeout_s)
    current = CurrentDefinitions(database, defs)
    invoker = Invoker(client, current, settings=settings, limits=WorkflowLimits(), clock=clock, jitter=random.Random(1))

    places = Slots(slots, clock)

    def claimer(room: Callable[[], int], accept: Callable[[Lease], object]) -> Claimer:
        pools = PoolClaims(workers, hints)
        return Claimer(
            database,
            defs,
            owner=owner.id,
            slots=places,
            room=room,
            accept=accept,
            spans=spans,
            pools=pools,
            arriving=arriving,
        )

    commits = Commits(
        pipeline=pipeline,
        aftermath=aftermath,
        room=WaitRoom(database, WorkflowLimits().scanned_waits),
        limits=Limits(),
        ids=ids,
        probe=probe,
    )

    workers = sessions or WorkerSessions(clock, request_timeout_s=request_timeout_s, resume_grace_s=5.0)

    def driver(may_go_on: Callable[[], bool]) -> Dispatcher:
        affinities = Affinities(database, owner.id)
        stream = StreamDriver(
            commits=commits,
            affinities=affinities,
            deliveries=Deliveries(database),
            definitions=current,
            spans=spans,
            limits=WorkflowLimits(),
            clock=clock,
            jitter=random.Random(1),
            off_loop=OffLoop("test"),
            may_go_on=may_go_on,
        )
        http = Driver(invoker=invoker, commits=commits, spans=spans, may_go_on=may_go_on)
        return Dispatcher(http=http, stream=stream, sessions=workers, affinities=affinities, may_go_on=may_go_on)

    def timers(claims: Claimer) -> OwnTimers:
        kept = OwnTimers(claims, Gates(database, hints), hints, RunTraces.off(database), DatabaseClock(clock))
        if not own_timers:
            kept.hand_over()
        return kept

    return Incarnation(
        owner=owner,
        pipeline=pipeline,
        aftermath=aftermath,
        database=database,
        regater=Regater(database, defs, hints),
        slots=places,
        hints=hints,
        adoption=Adoption(database, defs, hints, arriving, owner=owner.id),
        arriving=arriving,
        part=workers.part,
        park_s=5.0,
        make_timers=timers,
        make_claimer=claimer,
        make_driver=driver,
    )


@contextlib.asynccontextmanager
async def executing(
    database: Database, scripts: Mapping[str, Script], **options: Any
) -> AsyncIterator[tuple[Incarnation, ScriptedFunctions]]:
    """An executor that lives while the block runs, and leaves as a process that is told to stop."""
    functions = ScriptedFunctions(scripts)
    incarnation = make_incarnation(database, functions, **options)
    async with living(incarnation):
        yield incarnation, functions


@contextlib.asynccontextmanager
async def living(incarnation: Incarnation) -> AsyncIterator[asyncio.Task[None]]:
    """Register, hold runs, leave."""
    await incarnation.owner.register()
    life = asyncio.create_task(incarnation.run())
    try:
        yield life
    finally:
        await incarnation.leave()
        life.cancel()
        await asyncio.wait({life})


async def kill(database: Database, incarnation: Incarnation, life: asyncio.Task[None]) -> None:
    """End it as kill -9 does: nothing is given back, and the server loses its sessions."""
    life.cancel()
    await asyncio.wait({life})
    incarnation.owner.hang_up()
    async with database.connection() as connection:
        await connection.fetch(
            "select pg_terminate_backend(pid) from pg_locks "
            "where locktype = 'advisory' and (classid::bigint << 32 | objid::bigint) = $1",
            incarnation.owner.id,
        )


@contextlib.asynccontextmanager
async def slow_commits(database: Database, table: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Transactions that insert into `table` stop in their COMMIT until this is left; the value waits for one to stop.

    The way to an answer that is lost although the commit happens: cut the connection meanwhile.
    """
    await _blocking_trigger(database, table)
    async with database.connection() as connection:
        await connection.execute("select pg_advisory_lock($1)", _COMMIT_LOCK)

        async def stopped() -> None:
            waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
            await until(lambda: connection.fetchval(waiting))

        try:
            yield stopped
        finally:
            await connection.execute("select pg_advisory_unlock($1)", _COMMIT_LOCK)
            await connection.execute(f"drop trigger stop_at_commit on {table}")


_COMMIT_LOCK = 424_242


async def _blocking_trigger(database: Database, table: str) -> None:
    async with database.connection() as connection:
        await connection.execute(
            f"""
            create or replace function public.stop_at_commit() returns trigger language plpgsql as
            $$ begin perform pg_advisory_xact_lock({_COMMIT_LOCK}); return null; end $$;
            create constraint trigger stop_at_commit after insert on {table} deferrable initially deferred
            for each row execute function public.stop_at_commit();
            """
        )
