"""An executor played by hand: the test says what the function answered, the engine's own code does the rest."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.core.domain.cause import Answered, Cause, FunctionFailed
from services.core.domain.op import FunctionFault, Op
from services.core.domain.run import Limits, Status
from services.core.domain.transition import decide
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.declare import Declarer
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.start_request import StartRequest
from services.core.engine.start_run import RunStarter
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.pipeline import Pipeline
from services.core.store.queries import queries
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.record import commit_item

ALL_PARTS = list(range(64))


class Hand:
    """One tenant's runs, moved step by step. `project` is the one of `start` and `declare`."""

    def __init__(self, database: Database, tenant: int, pipeline: Pipeline, owner: int, project: str) -> None:
        hints = Hints(NullPublisher())
        self.database = database
        self.tenant = tenant
        self.project = project
        self.ids = UlidFactory(SystemClock(), random.Random())
        self._definitions = DefinitionsCache(None)
        self._starter = RunStarter(database, self._definitions, hints, self.ids)
        self._acceptor = EventAcceptor(database, self._definitions, hints, self.ids)
        self._canceller = RunCanceller(database, hints)
        self._declarer = Declarer(database, lambda _: None)
        self._pipeline = pipeline
        self._owner = owner
        self._leases: dict[UUID, Lease] = {}

    async def declare(self, *definitions: Mapping[str, Any], project: str | None = None) -> None:
        """Replace the project's workflows."""
        body = json.dumps({"workflows": definitions}).encode()
        await self._declarer.declare(self.tenant, project or self.project, body)

    async def start(self, workflow: str, data: str = "{}", **options: Any) -> UUID:
        """Start a run over the API's way."""
        request = {"tenant": self.tenant, "project": self.project, "workflow": workflow, "data": data, **options}
        return (await self._starter.start(StartRequest(**request))).run

    async def send(self, name: str, data: str = "{}", **options: Any) -> Accepted:
        """Accept one event."""
        return (await self.send_all([Incoming(name=name, data=data, **options)]))[0]

    async def send_all(self, events: Sequence[Incoming]) -> list[Accepted]:
        """Accept events of one request."""
        return await self._acceptor.accept(self.tenant, events)

    async def cancel(self, run: UUID) -> None:
        """Cancel a run."""
        await self._canceller.cancel(self.tenant, run)

    async def answer(self, run: UUID, *ops: Op) -> Status:
        """The function answered these ops; the run is claimed if it is not held. Its status after the commit."""
        return await self._apply(run, Answered(ops))

    async def fail(self, run: UUID, name: str = "FunctionTimeout", message: str = "no answer") -> Status:
        """The function did not answer."""
        return await self._apply(run, FunctionFailed(FunctionFault(name, message)))

    async def fire(self, run: UUID) -> None:
        """Time passes: what the run waits for with a due time is due, and fires."""
        async with self.database.connection() as connection:
            await connection.execute("update rt.wait set due_at = rt.now() where run = $1 and due_at is not null", run)
            await connection.execute("select * from rt.fire_v1($1, 500)", ALL_PARTS)

    async def _apply(self, run: UUID, cause: Cause) -> Status:
        lease = self._leases.get(run) or await self._claim(run)
        decision = decide(lease.view(Limits()), cause, lease.reached_ms)
        item = commit_item(lease, decision, self.ids)
        done = await self._pipeline.commit(item)
        lease.advance(decision, item, done)
        if decision.status is not Status.RUNNING or done.st != "r":
            del self._leases[run]
        return decision.status

    async def hold(self, run: UUID) -> Lease | None:
        """Take the run's lease; None if it is not to be had."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(queries("executor")["claim_hinted"], self._owner, [run], 1)
            leases = await load_leases(connection, self._definitions, rows)
        self._leases |= {lease.run: lease for lease in leases}
        return self._leases.get(run)

    async def let_go(self, lease: Lease) -> None:
        """Give it back without an attempt."""
        self.forget(lease.run)
        async with self.database.connection() as connection:
            await connection.fetch(queries("executor")["let_go"], self._owner, [lease.run], [lease.epoch], True)

    def forget(self, run: UUID) -> None:
        """Its lease is lost."""
        self._leases.pop(run, None)

    async def _claim(self, run: UUID) -> Lease:
        lease = await self.hold(run)
        assert lease is not None, "the run is not queued"
        return lease


@contextlib.asynccontextmanager
async def playing(database: Database, tenant: int, project: str = "default") -> AsyncIterator[Hand]:
    """A hand over the runs of a tenant."""
    owner = secrets.randbits(63)
    pipeline = Pipeline(database.dsn, owner=owner)
    serving = asyncio.create_task(pipeline.run())
    try:
        yield Hand(database, tenant, pipeline, owner, project)
    finally:
        serving.cancel()
        await asyncio.wait({serving})


@contextlib.asynccontextmanager
async def neighbour(hand: Hand, sealer: Sealer) -> AsyncIterator[Hand]:
    """A hand over the runs of another tenant."""
    async with hand.database.transaction() as connection:
        tenant = await connection.fetchval("select rt.create_tenant($1, '')", f"n{uuid4().hex[:12]}")
        await create_project(connection, sealer, tenant, "next-door", ProjectChange())
    async with playing(hand.database, tenant, "next-door") as theirs:
        await theirs.declare({"name": "work"})
        yield theirs


@pytest.fixture
async def hand(database: Database, tenant: int) -> AsyncIterator[Hand]:
    """A hand over the runs of the default tenant's default project, with one workflow: `work`."""
    async with playing(database, tenant) as played:
        await played.declare({"name": "work"})
        yield played
