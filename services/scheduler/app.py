"""The composition root of the scheduler: time, recovery, and the slow control plane."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from runr.workflows.v1 import access_service_pb2_grpc, workflow_service_pb2_grpc

from services.core.bus.bus_meter import watch_bus
from services.core.bus.jetstream import Bus
from services.core.domain.errors import Unavailable
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.engine.bulk_job import BulkJobs
from services.core.engine.bulk_work import BulkWorker
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import FanOutMarks
from services.core.engine.fire_due import DueSchedules
from services.core.engine.fire_schedule import ScheduleFirer
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.look_back import LookBack
from services.core.engine.look_backs import LookBacks
from services.core.engine.once import StoredOnce
from services.core.engine.regate import Regater
from services.core.engine.run_events import RunEventMarks
from services.core.engine.run_meter import RunMeter
from services.core.engine.run_traces import RunTraces
from services.core.engine.schedules import Schedules
from services.core.engine.send_events import SendEventMarks
from services.core.rpc.credentials import server_credentials
from services.core.rpc.server import Registration, RpcServer
from services.core.runtime.health import NotReady
from services.core.runtime.ids import UlidFactory
from services.core.runtime.lifecycle import Component
from services.core.runtime.metrics import Metrics
from services.core.runtime.sealing import Sealer
from services.core.runtime.service import Runtime
from services.core.runtime.settings import (
    AccessSettings,
    DatabaseSettings,
    EncryptionSettings,
    LeaseSettings,
    ListenSettings,
    NatsSettings,
    PeerSettings,
    RetentionSettings,
    RpcSecuritySettings,
    SessionSettings,
    WorkflowLimits,
)
from services.core.store.component import DatabaseComponent
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.core.store.named_writes import NamedWrites
from services.core.store.pool_meter import watch_clock, watch_pools
from services.core.store.runs import RunReader
from services.scheduler.access_service import AccessService
from services.scheduler.delete_project import ProjectDeleter
from services.scheduler.duties.access import ForgetAccess
from services.scheduler.duties.arming import Arming
from services.scheduler.duties.backlog import Backlog
from services.scheduler.duties.bulk import Bulk
from services.scheduler.duties.cron import Cron, ForgetFires
from services.scheduler.duties.gates import SweepGates
from services.scheduler.duties.glance import Glance
from services.scheduler.duties.marks import Marks
from services.scheduler.duties.named_writes import ForgetWrites
from services.scheduler.duties.owners import ForgetOwners
from services.scheduler.duties.paths import ForgetPaths
from services.scheduler.duties.prune import Prune
from services.scheduler.duties.rehint import Rehint
from services.scheduler.duties.rescue import Rescue
from services.scheduler.duties.send_events import FanOut, RunEvents, SendEvents
from services.scheduler.duties.timeout import Timeout
from services.scheduler.duties.usage import FoldUsage
from services.scheduler.duties.wake import Wake
from services.scheduler.partitions import Partitions
from services.scheduler.schedule_service import ScheduleService
from services.scheduler.ticker import Duty, Ticker
from services.scheduler.workflow_service import WorkflowService

log = logging.getLogger(__name__)

_CONNECTIONS = 6
_MAX_SKEW_MS = 5_000
_RETRY_S = 0.5


@dataclass(frozen=True)
class Settings:
    """What the scheduler reads from the environment."""

    database: DatabaseSettings
    nats: NatsSettings
    lease: LeaseSettings
    encryption: EncryptionSettings
    access: AccessSettings
    sessions: SessionSettings
    listen: ListenSettings
    peers: PeerSettings
    security: RpcSecuritySettings
    retention: RetentionSettings
    limits: WorkflowLimits


def build(settings: Settings, runtime: Runtime) -> list[Component]:
    """The components of the scheduler, lowest dependency first; opens nothing.

    Ready means that the database answers and its clock is near this machine's. NATS is no condition.
    """
    database = Database(settings.database.url, name="runr-scheduler", size=_CONNECTIONS)
    bus = Bus(settings.nats.url, prefix=settings.nats.prefix, client_name="runr-scheduler")
    runtime.health.observe("nats", lambda: "connected" if bus.connected else "away")
    sealer = Sealer(settings.encryption.key, retired=settings.encryption.former)
    hints = Hints(bus)
    traces = RunTraces(database, runtime.telemetry, RunMeter(runtime.metrics))
    node = f"{socket.gethostname()}/{os.getpid()}"
    partitions = Partitions(
        settings.database.url,
        node=node,
        clock=runtime.clock,
        beat_s=min(3.0, settings.lease.heartbeat_s),
        supervised=runtime.supervised,
    )
    theirs = DatabaseClock(runtime.clock)
    watch_bus(runtime.metrics, bus)
    watch_pools(runtime.metrics, database)
    watch_clock(runtime.metrics, theirs)
    Backlog(database, partitions, runtime.metrics, runtime.clock)
    runtime.health.register("clock", _SkewCheck(theirs).check)
    bulk = _bulk(database, hints, runtime, theirs, traces)
    look_backs = LookBacks(database, LookBack(database, hints, traces))
    server = RpcServer(
        settings.listen.grpc or settings.peers.scheduler,
        _services(settings, database, sealer, hints, runtime, theirs, traces, bulk),
        authenticator=StoreAuthenticator(database, runtime.clock),
        telemetry=runtime.telemetry,
        credentials=server_credentials(settings.security),
        plaintext=settings.security.plaintext,
        metrics=runtime.metrics,
        once=StoredOnce(NamedWrites(database), sealer, UlidFactory(theirs, runtime.random)),
    )
    return [
        DatabaseComponent(database, runtime.health),
        _Entrance(database, sealer, settings.access.bootstrap_token),
        traces,
        bus,
        partitions,
        server,
        look_backs,
        _Duties(
            bus,
            _duties(settings, runtime, theirs, database, bus, hints, partitions, traces, bulk, look_backs),
            runtime.metrics,
        ),
    ]


def _bulk(database: Database, hints: Hints, runtime: Runtime, theirs: DatabaseClock, traces: RunTraces) -> Bulk:
    definitions = DefinitionsCache(None, clock=runtime.clock)
    ids = UlidFactory(theirs, runtime.random)
    return Bulk(BulkWorker(database, definitions, hints, ids, traces))


def _services(
    settings: Settings,
    database: Database,
    sealer: Sealer,
    hints: Hints,
    runtime: Runtime,
    theirs: DatabaseClock,
    traces: RunTraces,
    bulk: Bulk,
) -> list[Registration]:
    """The gRPC services of the scheduler."""
    ids = UlidFactory(theirs, runtime.random)
    deleter = ProjectDeleter(database, hints, hints.defs_changed)
    access = AccessService(database, sealer, ids, deleter, hints.defs_changed, settings=settings.sessions)
    declarer = Declarer(database, hints.defs_changed, settings.limits.workflows_per_project)
    workflows = WorkflowService(database, declarer)
    firer = ScheduleFirer(database, DefinitionsCache(None, clock=runtime.clock), hints, ids, traces)
    jobs = BulkJobs(database, ids, runtime.clock, bulk.nudge)
    schedules = ScheduleService(Schedules(database), firer, RunReader(database), jobs)
    return [
        (workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server, workflows),
        (access_service_pb2_grpc.add_AccessServiceServicer_to_server, access),
        schedules.registration,
    ]


def _duties(
    settings: Settings,
    runtime: Runtime,
    theirs: DatabaseClock,
    database: Database,
    bus: Bus,
    hints: Hints,
    partitions: Partitions,
    traces: RunTraces,
    bulk: Bulk,
    look_backs: LookBacks,
) -> tuple[Wake, list[Duty]]:
    """The timers' duty, which also hears hints, and all duties."""
    ids = UlidFactory(theirs, runtime.random)
    definitions = DefinitionsCache(None, clock=runtime.clock)
    acceptor = EventAcceptor(database, definitions, hints, ids, traces)
    wake = Wake(database, partitions, hints, runtime.clock, theirs, traces)
    marks = Marks(database, hints, traces)
    rescue = Rescue(
        database, hints, runtime.clock, settings.lease, marks.nudge, traces=traces, own=lambda: partitions.owner
    )
    glance = Glance(database, theirs)
    glance.tells("due", wake.sweep)
    glance.tells("marked", marks.wake)
    glance.tells("orphaned", rescue.wake)
    glance.tells("jobs", bulk.nudge)
    duties: list[Duty] = [
        wake,
        glance,
        glance.wakes("cron", Cron(DueSchedules(database, definitions, hints, ids, traces))),
        marks,
        glance.wakes("overdue", Timeout(database, hints, marks.nudge, traces)),
        rescue,
        glance.wakes("marked", SendEvents(SendEventMarks(database, acceptor).sweep)),
        glance.wakes("marked", FanOut(FanOutMarks(database, hints, traces).sweep)),
        glance.wakes("marked", RunEvents(RunEventMarks(database, acceptor).sweep)),
        glance.wakes("blocked", SweepGates(Gates(database, hints), Regater(database, definitions, hints))),
        glance.wakes("arming", Arming(look_backs)),
        glance.wakes("queued", Rehint(database, hints, bus.pending)),
        FoldUsage(database),
        ForgetAccess(database, settings.retention.audit_days, settings.sessions.login_window_ms),
        ForgetOwners(database),
        ForgetWrites(NamedWrites(database)),
        ForgetPaths(database),
        ForgetFires(database, settings.retention.run_days),
        Prune(database, settings.retention),
        bulk,
    ]
    return wake, duties


class _Duties(Ticker):
    """The ticker with its ear on the bus."""

    def __init__(self, bus: Bus, duties: tuple[Wake, list[Duty]], metrics: Metrics) -> None:
        self._bus = bus
        self._wake, every = duties
        super().__init__(every, metrics)

    async def start(self) -> None:
        """See `Component.start`."""
        await self._bus.on_timers(self._wake.hinted)


class _Entrance(Component):
    """Makes sure that the default tenant and the token of the settings exist."""

    name = "entrance"

    def __init__(self, database: Database, sealer: Sealer, token: str) -> None:
        self._database = database
        self._sealer = sealer
        self._token = token

    async def start(self) -> None:
        """See `Component.start`."""
        while True:
            try:
                await ensure_bootstrap(self._database, self._sealer, self._token or None)
                return
            except Unavailable:
                log.warning("waiting for the database")
                await asyncio.sleep(_RETRY_S)


class _SkewCheck:
    """Readiness: times that users give and times that the engine keeps must mean the same (rulings C21)."""

    def __init__(self, theirs: DatabaseClock) -> None:
        self._theirs = theirs

    async def check(self) -> None:
        """Raises NotReady."""
        if self._theirs.known and abs(self._theirs.skew_ms()) > _MAX_SKEW_MS:
            raise NotReady("this machine's clock is more than 5 s away from the database's")
