"""The composition root of the executor: everything that touches a function."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass

from services.core.bus.bus_meter import watch_bus
from services.core.bus.jetstream import Bus
from services.core.domain.run import Limits
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.key_check import KeyCheck
from services.core.engine.once import StoredOnce
from services.core.engine.regate import Regater
from services.core.engine.rescue_runs import Predecessors, RunRescuer
from services.core.engine.run_meter import RunMeter
from services.core.engine.run_traces import RunTraces
from services.core.engine.sync import Syncer
from services.core.engine.wait_room import WaitRoom
from services.core.rpc.credentials import server_credentials
from services.core.rpc.server import RpcServer
from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.ids import UlidFactory
from services.core.runtime.lifecycle import Component
from services.core.runtime.off_loop import OffLoop
from services.core.runtime.sealing import Sealer
from services.core.runtime.service import Runtime
from services.core.runtime.settings import (
    DatabaseSettings,
    EncryptionSettings,
    FunctionSettings,
    LeaseSettings,
    ListenSettings,
    NatsSettings,
    PeerSettings,
    PublicSettings,
    RpcSecuritySettings,
    WorkflowLimits,
)
from services.core.store.component import DatabaseComponent
from services.core.store.database import Database
from services.core.store.database_clock import ClockKeeper, DatabaseClock
from services.core.store.named_writes import NamedWrites
from services.core.store.pipeline import Pipeline
from services.core.store.pipeline_meter import PipelineMeter
from services.core.store.pool_meter import watch_clock, watch_pools
from services.executor.aftermath import Aftermath
from services.executor.arriving import Arriving
from services.executor.claim import Claimer
from services.executor.commits import Commits, Probe
from services.executor.current_definitions import CurrentDefinitions
from services.executor.dispatch import Dispatcher
from services.executor.drive import Driver
from services.executor.executor import Executor
from services.executor.executor_meter import watch_executor
from services.executor.function_calls import FunctionCalls
from services.executor.function_service import FunctionService
from services.executor.incarnation import Incarnation
from services.executor.invocation_meter import InvocationMeter
from services.executor.invoke import Invoker
from services.executor.lease import Lease
from services.executor.own_timers import OwnTimers
from services.executor.owner import Owner
from services.executor.project_function import ProjectFunctions
from services.executor.slots import Slots
from services.executor.spans import ExecutorSpans
from services.executor.worker_stream.adoption import Adoption
from services.executor.worker_stream.affinities import Affinities
from services.executor.worker_stream.deliveries import Deliveries
from services.executor.worker_stream.drive import StreamDriver
from services.executor.worker_stream.handshake import Handshake
from services.executor.worker_stream.pool_claims import PoolClaims
from services.executor.worker_stream.recalls import Recalls
from services.executor.worker_stream.service import WorkerService
from services.executor.worker_stream.sessions import WorkerSessions

_PARK_S = 10.0
"""For how long a worker may look for another executor when this one stops; as long as when it dies."""


@dataclass(frozen=True)
class ExecutorSettings:
    """How much one executor process holds at once."""

    slots: int = setting("RUNR_EXECUTOR_SLOTS", parse.integer(1, 100_000), 256)
    resume_grace_s: float = setting("RUNR_WORKER_RESUME_GRACE", parse.seconds(0, 300), 5.0)


@dataclass(frozen=True)
class Settings:
    """What the executor reads from the environment."""

    executor: ExecutorSettings
    database: DatabaseSettings
    nats: NatsSettings
    lease: LeaseSettings
    functions: FunctionSettings
    public: PublicSettings
    limits: WorkflowLimits
    encryption: EncryptionSettings
    listen: ListenSettings
    peers: PeerSettings
    rpc: RpcSecuritySettings


def build(settings: Settings, runtime: Runtime, probe: Probe | None = None) -> list[Component]:
    """The components of the executor, lowest dependency first; opens nothing."""
    database = Database(settings.database.url, name="runr-executor", size=6)
    bus = Bus(settings.nats.url, prefix=settings.nats.prefix, client_name="runr-executor")
    calls = FunctionCalls(settings.functions, runtime.clock)
    sealer = Sealer(settings.encryption.key, retired=settings.encryption.former)
    definitions = DefinitionsCache(sealer, clock=runtime.clock, key_grace_ms=settings.functions.key_rotation_grace_ms)
    traces = RunTraces(database, runtime.telemetry, RunMeter(runtime.metrics))
    current = CurrentDefinitions(database, definitions)
    theirs = DatabaseClock(runtime.clock)
    sessions = WorkerSessions(
        runtime.clock,
        request_timeout_s=settings.functions.request_timeout_s,
        resume_grace_s=settings.executor.resume_grace_s,
    )
    parts = _Parts(
        settings,
        runtime,
        theirs,
        database,
        bus,
        sealer,
        definitions,
        current,
        calls,
        traces,
        sessions,
        probe,
        PipelineMeter(runtime.metrics),
        InvocationMeter(runtime.metrics),
    )
    predecessors = Predecessors(database, RunRescuer(database, Hints(bus), traces), runtime.supervised.replaces)
    recalls = Recalls(database, sessions, Hints(bus))
    executor = Executor(bus, current, parts.incarnation, sessions=sessions, bury=predecessors.bury)
    workers = Handshake(
        database,
        definitions,
        Syncer(database, Hints(bus).defs_changed, settings.limits.workflows_per_project),
    )
    functions = ProjectFunctions(
        database=database,
        definitions=parts.definitions,
        sealer=parts.sealer,
        client=calls.client,
        settings=settings.functions,
        clock=runtime.clock,
        defs_changed=Hints(bus).defs_changed,
        public_url=settings.public.api_url,
        max_workflows=settings.limits.workflows_per_project,
    )
    runtime.health.register("leases", executor.check)
    watch_bus(runtime.metrics, bus)
    watch_pools(runtime.metrics, database)
    watch_clock(runtime.metrics, theirs)
    watch_executor(runtime.metrics, executor, sessions, settings.executor.slots)
    rpc = RpcServer(
        settings.listen.grpc or settings.peers.executor,
        [
            FunctionService(functions, sessions.connected).registration,
            WorkerService(sessions, workers, recalls, runtime.clock).registration,
        ],
        authenticator=StoreAuthenticator(database, runtime.clock),
        telemetry=runtime.telemetry,
        credentials=server_credentials(settings.rpc),
        plaintext=settings.rpc.plaintext,
        name="grpc-executor",
        shared=runtime.slot is not None,
        metrics=runtime.metrics,
        once=StoredOnce(NamedWrites(database), sealer, UlidFactory(theirs, runtime.random)),
    )
    return [
        DatabaseComponent(database, runtime.health),
        ClockKeeper(database, theirs, runtime.health),
        KeyCheck(database, sealer),
        traces,
        bus,
        calls,
        rpc,
        sessions,
        recalls,
        executor,
    ]


@dataclass(frozen=True)
class _Parts:
    """What every incarnation is made of."""

    settings: Settings
    runtime: Runtime
    theirs: DatabaseClock
    database: Database
    bus: Bus
    sealer: Sealer
    definitions: DefinitionsCache
    current: CurrentDefinitions
    calls: FunctionCalls
    traces: RunTraces
    sessions: WorkerSessions
    probe: Probe | None
    pipeline_meter: PipelineMeter
    meter: InvocationMeter

    def incarnation(self) -> Incarnation:
        """A new life under a new owner id."""
        runtime, settings = self.runtime, self.settings
        ids = UlidFactory(self.theirs, runtime.random)
        hints = Hints(self.bus)
        slot = "" if runtime.slot is None else f"/{runtime.slot}"
        node = f"{socket.gethostname()}{slot}/{os.getpid()}"
        owner = Owner(
            settings.database.url,
            node=node,
            settings=settings.lease,
            clock=runtime.clock,
            process=runtime.supervised.name,
        )
        pipeline = Pipeline(settings.database.url, owner=owner.id, meter=self.pipeline_meter)
        acceptor = EventAcceptor(self.database, self.definitions, hints, ids, self.traces)
        aftermath = Aftermath(self.database, hints, acceptor, self.theirs, self.traces)
        spans = ExecutorSpans(runtime.telemetry)

        slots = Slots(settings.executor.slots, runtime.clock)
        arriving = Arriving()

        def claimer(room: Callable[[], int], accept: Callable[[Lease], object]) -> Claimer:
            return Claimer(
                self.database,
                self.definitions,
                owner=owner.id,
                slots=slots,
                room=room,
                accept=accept,
                spans=spans,
                pools=PoolClaims(self.sessions, hints),
                arriving=arriving,
            )

        commits = Commits(
            pipeline=pipeline,
            aftermath=aftermath,
            room=WaitRoom(self.database, settings.limits.scanned_waits, runtime.clock),
            limits=_limits(settings.limits),
            ids=ids,
            meter=self.meter,
            probe=self.probe,
        )

        def driver(may_go_on: Callable[[], bool]) -> Dispatcher:
            return self._dispatcher(commits, spans, Affinities(self.database, owner.id), may_go_on)

        return Incarnation(
            owner=owner,
            pipeline=pipeline,
            aftermath=aftermath,
            database=self.database,
            regater=Regater(self.database, self.definitions, hints),
            slots=slots,
            hints=hints,
            adoption=Adoption(self.database, self.definitions, hints, arriving, owner=owner.id),
            arriving=arriving,
            part=self.sessions.part,
            park_s=max(_PARK_S, settings.executor.resume_grace_s),
            make_timers=lambda claims: OwnTimers(claims, Gates(self.database, hints), hints, self.traces, self.theirs),
            make_claimer=claimer,
            make_driver=driver,
        )

    def _dispatcher(
        self, commits: Commits, spans: ExecutorSpans, affinities: Affinities, may_go_on: Callable[[], bool]
    ) -> Dispatcher:
        stream = StreamDriver(
            commits=commits,
            affinities=affinities,
            deliveries=Deliveries(self.database),
            definitions=self.current,
            spans=spans,
            limits=self.settings.limits,
            clock=self.runtime.clock,
            jitter=random.Random(),  # noqa: S311 - a backoff is no secret
            off_loop=OffLoop("reported-ops"),
            may_go_on=may_go_on,
        )
        http = Driver(invoker=self._invoker(), commits=commits, spans=spans, may_go_on=may_go_on)
        return Dispatcher(http=http, stream=stream, sessions=self.sessions, affinities=affinities, may_go_on=may_go_on)

    def _invoker(self) -> Invoker:
        return Invoker(
            self.calls.client,
            self.current,
            settings=self.settings.functions,
            limits=self.settings.limits,
            clock=self.runtime.clock,
            jitter=random.Random(),  # noqa: S311 - a backoff is no secret
            steps_per_run=self.settings.limits.steps_per_run,
            meter=self.meter,
        )


def _limits(limits: WorkflowLimits) -> Limits:
    return Limits(
        max_steps=limits.steps_per_run, max_state_bytes=limits.state_bytes, default_wait_ms=limits.wait_timeout_ms
    )
