"""The engine of an episode: its real parts over one database, put together as the composition roots do."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

from runr_workflows.connect.handshake import Introduction

from services.core.engine.accept_events import EventAcceptor
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.replay_run import RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.signing_keys import open_keys
from services.core.engine.start_run import RunStarter
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import get_project
from tests.model.clock import MovedClock, Time
from tests.model.executor import ModelExecutor
from tests.model.function import Functions
from tests.model.plan import EXECUTORS, SCHEDULERS, WORKERS, Plan
from tests.model.scheduler import ModelScheduler
from tests.model.script import Workflow
from tests.model.wire import Wire
from tests.model.worker import ModelWorker
from tests.support.engine import EMPTIED

PROJECT = "default"
_INGEST = "model_ingest"
_SEALER = Sealer(bytes(range(32)))
_END_SESSIONS = """
select pg_terminate_backend(pid) from pg_stat_activity where usename = $1 and datname = current_database()
"""


class Ingest:
    """What answers requests: the use cases of ingest, and the declarer."""

    def __init__(self, url: str, wire: Wire, clock: MovedClock, rng: random.Random) -> None:
        self.database = Database(url, name="model-ingest", size=12)
        definitions, hints, ids = DefinitionsCache(None), Hints(wire), UlidFactory(clock, rng)
        self.starter = RunStarter(self.database, definitions, hints, ids)
        self.acceptor = EventAcceptor(self.database, definitions, hints, ids)
        self.canceller = RunCanceller(self.database, hints)
        self.retrier = RunRetrier(self.database, definitions, hints)
        self.replayer = RunReplayer(self.database, definitions, hints, ids)
        self.declarer = Declarer(self.database, hints.defs_changed)


class Machine:
    """Ingest, executors and schedulers over an emptied database; an async context manager.

    `clock` is that of ingest and the executors. `database` is the test's own way to look, never cut. `tenants` have the
    same workflows and see nothing of each other.
    """

    def __init__(self, url: str, plan: Plan) -> None:
        rng = random.Random(plan.seed)
        self.url = url
        self.plan = plan
        self.database = Database(url, name="model-test", size=8)
        self.wire = Wire(rng, lost=plan.lost, doubled=plan.doubled, late=plan.late, unheard=plan.unheard)
        self.wire.on_ready = self._ready
        self.wire.on_cancelled = self._cancelled
        self.wire.on_pool = self._pooled
        self.wire.on_mail = self._mailed
        self.functions = Functions({workflow.name: workflow for workflow in plan.workflows}, self.database)
        self.clock, *clocks = [MovedClock() for _ in range(1 + SCHEDULERS)]
        self.time = Time(self.database, [self.clock, *clocks])
        self.ingest = Ingest(_as_role(url, _INGEST), self.wire, self.clock, rng)
        self._rng = rng
        self.executors = [self._executor(number) for number in range(EXECUTORS)]
        self.schedulers = [ModelScheduler(url, self.wire, clock, rng) for clock in clocks]
        self.tenants: list[int] = []
        self.workers: dict[int, ModelWorker] = {}
        """By number; those of one tenant follow one another."""

    def _executor(self, number: int) -> ModelExecutor:
        role = f"model_executor_{number}"

        async def end_sessions() -> None:
            await self._end_sessions(role)

        url = _as_role(self.url, role)
        return ModelExecutor(url, self.functions, self.wire, self.clock, end_sessions, self._rng, slots=self.plan.slots)

    async def __aenter__(self) -> Self:
        await self.database.open()
        await self._roles()
        await self.time.install()
        async with self.database.connection() as connection:
            await connection.execute(";".join(f"delete from rt.{table}" for table in EMPTIED))
        self.tenants = [await self._tenant(number) for number in range(2)]
        await self.ingest.database.open()
        body = json.dumps({"workflows": [workflow.definition() for workflow in self.plan.workflows]}).encode()
        for tenant in self.tenants:
            await self.ingest.declarer.declare(tenant, PROJECT, body)
        await asyncio.gather(*(executor.start() for executor in self.executors))
        await asyncio.gather(*(scheduler.start() for scheduler in self.schedulers))
        for number, transport in enumerate(self.plan.transports):
            if transport != "http":
                for place in range(WORKERS):
                    self.workers[number * WORKERS + place] = await self._worker(number)
        for worker in self.workers.values():
            worker.start()
        await asyncio.gather(*(worker.connected() for worker in self.workers.values()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.functions.open = True
        self.functions.let_go()
        await asyncio.gather(*(worker.stop() for worker in self.workers.values()))
        await asyncio.gather(*(executor.stop() for executor in self.executors))
        await asyncio.gather(*(scheduler.close() for scheduler in self.schedulers))
        await self.ingest.database.close()
        await self.database.close()

    @property
    def living(self) -> list[int]:
        """The owners that beat."""
        return [executor.owner for executor in self.executors if executor.owner is not None and not executor.is_dying]

    def workflow(self, name: str) -> Workflow:
        """The workflow of this name."""
        return next(workflow for workflow in self.plan.workflows if workflow.name == name)

    async def cut_ingest(self) -> None:
        """The server drops the connections of ingest."""
        await self._end_sessions(_INGEST)

    def _ready(self, runs: Sequence[UUID]) -> None:
        self._rng.choice(self.executors).hint(runs)

    def _cancelled(self, owner: int, runs: Sequence[UUID]) -> None:
        for executor in self.executors:
            executor.abandon(owner, runs)

    def _pooled(self, workflows: Sequence[int]) -> None:
        for executor in self.executors:
            executor.pooled(workflows)

    def _mailed(self, owner: int, runs: Sequence[UUID]) -> None:
        for executor in self.executors:
            executor.mailed(owner, runs)

    async def _worker(self, number: int) -> ModelWorker:
        """A worker of a tenant."""
        tenant = self.tenants[number]
        async with self.database.connection() as connection:
            slug = await connection.fetchval("select slug from rt.tenant where id = $1", tenant)
            keys = open_keys(_SEALER, await get_project(connection, tenant, PROJECT), 0)
        assert keys is not None
        return ModelWorker(
            lambda session, definitions: Introduction(slug, PROJECT, session, definitions, 0),
            keys.current,
            _url(number),
            self.plan.workflows,
            self.functions,
            lambda: self._rng.choice(self.executors).connect(),
            self._rng,
            credits=self.plan.credits,
        )

    async def _tenant(self, number: int) -> int:
        if number == 0:
            tenant = await ensure_bootstrap(self.database, _SEALER, None)
        else:
            async with self.database.transaction() as connection:
                tenant = await create_tenant(connection, f"other-{number}", "")
                if await connection.fetchval("select count(*) from rt.projects where tenant = $1", tenant) == 0:
                    await create_project(connection, _SEALER, tenant, PROJECT, ProjectChange())
        async with self.database.connection() as connection:
            # Two tenants' projects have one slug; the model's functions tell them apart by their URL.
            url = None if self.plan.transports[number] == "stream" else _url(number)
            await connection.execute("update rt.projects set endpoint_url = $2 where tenant = $1", tenant, url)
            await connection.execute("update rt.defs_version set v = v + 1 where tenant = $1", tenant)
        return tenant

    async def _roles(self) -> None:
        """A database role for each process, so that the server can be told whose sessions to end."""
        password = urlsplit(self.url).password
        async with self.database.connection() as connection:
            for role in (_INGEST, *(f"model_executor_{number}" for number in range(EXECUTORS))):
                if await connection.fetchval("select 1 from pg_roles where rolname = $1", role) is None:
                    await connection.execute(f"create role {role} superuser login password '{password}'")

    async def _end_sessions(self, role: str) -> None:
        async with self.database.connection() as connection:
            await connection.fetch(_END_SESSIONS, role)


def _url(tenant: int) -> str:
    return f"https://tenant-{tenant}.test"


def _as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{parts.password}@{parts.hostname}:{parts.port}"))
