"""The composition root of ingest: everything asked of the engine from outside."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from runr.workflows.v1 import event_service_pb2_grpc, run_service_pb2_grpc

from services.core.bus.bus_meter import watch_bus
from services.core.bus.jetstream import Bus
from services.core.domain.event import EventLimits
from services.core.domain.start_rule import StartLimits
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.deliver_message import MessageDeliverer
from services.core.engine.hints import Hints
from services.core.engine.key_check import KeyCheck
from services.core.engine.once import StoredOnce
from services.core.engine.replay_run import RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.run_meter import RunMeter
from services.core.engine.run_traces import RunTraces
from services.core.engine.start_run import LANES, RunStarter
from services.core.rpc.credentials import server_credentials
from services.core.rpc.server import Registration, RpcServer
from services.core.rpc.submissions import Submissions
from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.fair_turns import FairTurns
from services.core.runtime.ids import UlidFactory
from services.core.runtime.lifecycle import Component
from services.core.runtime.owned_ids import OwnedIds
from services.core.runtime.sealing import Sealer
from services.core.runtime.service import Runtime
from services.core.runtime.settings import (
    DatabaseSettings,
    EncryptionSettings,
    FunctionSettings,
    ListenSettings,
    NatsSettings,
    PeerSettings,
    RpcSecuritySettings,
    WorkflowLimits,
)
from services.core.store.component import DatabaseComponent
from services.core.store.database import Database
from services.core.store.database_clock import ClockKeeper, DatabaseClock
from services.core.store.events import EventReader
from services.core.store.named_writes import NamedWrites
from services.core.store.pool_meter import watch_clock, watch_pools
from services.core.store.run_changes import RunChangeReader
from services.core.store.runs import RunReader
from services.ingest.event_service import EventService
from services.ingest.queue_bridge import QueueBridge
from services.ingest.queue_consumer import ConsumerParts
from services.ingest.queue_sink import QueueSink
from services.ingest.run_changes import RunChanges
from services.ingest.run_ends import RunEnds
from services.ingest.run_service import RunService, RunVerbs
from services.ingest.send_service import SendService
from services.ingest.start_service import StartService
from services.ingest.watch_service import WatchService

_WRITERS = 4
_READERS = 3
_QUEUE_WRITERS = 2  # of the writers: a backlog in a queue must not keep requests waiting
_TENANT_WRITERS = 3  # of the writers: what one tenant's events cost must not keep those of others waiting
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class QueueSettings:
    """How messages of JetStream streams are consumed."""

    max_deliver: int = setting("WORKFLOWS_QUEUE_MAX_DELIVER", parse.integer(1, 100), 5)
    ack_wait_s: float = setting("WORKFLOWS_QUEUE_ACK_WAIT", parse.seconds(1, 3_600), 30.0)


@dataclass(frozen=True)
class Settings:
    """What ingest reads from the environment."""

    database: DatabaseSettings
    nats: NatsSettings
    limits: WorkflowLimits
    queues: QueueSettings
    functions: FunctionSettings
    encryption: EncryptionSettings
    listen: ListenSettings
    peers: PeerSettings
    security: RpcSecuritySettings


class _Starts(DatabaseComponent):
    """Connections of their own for starts: events that take long must not keep them waiting."""

    name = "database-starts"


class _Reads(DatabaseComponent):
    """Connections of their own for reads: a slow list must not keep an event from being accepted."""

    name = "database-reads"


class _Parts:
    """What the services of ingest share; opens nothing."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        url = settings.database.url
        self.settings = settings
        self.runtime = runtime
        self.database = Database(url, name="runr-ingest", size=_WRITERS)
        self.starts = Database(url, name="runr-ingest-starts", size=LANES)
        self.reads = Database(url, name="runr-ingest-reads", size=_READERS)
        self.bus = Bus(settings.nats.url, prefix=settings.nats.prefix, client_name="runr-ingest")
        self.hints = Hints(self.bus)
        self.theirs = DatabaseClock(runtime.clock)
        self.ids = UlidFactory(self.theirs, runtime.random)
        self.sealer = Sealer(settings.encryption.key, retired=settings.encryption.former)
        self.definitions = DefinitionsCache(None, clock=runtime.clock)
        self.traces = RunTraces(self.database, runtime.telemetry, RunMeter(runtime.metrics))
        self.authenticator = StoreAuthenticator(self.reads, runtime.clock)
        owned = OwnedIds(self.sealer.secret_for("ids that senders make"))
        self.submissions = Submissions(self.authenticator, runtime.telemetry, self.theirs, owned)
        limits = settings.limits
        self.event_limits = EventLimits(events=limits.events_per_request, event_bytes=limits.event_bytes)
        turns = FairTurns(_WRITERS, each=_TENANT_WRITERS, patience_s=_PATIENCE_S)
        self.acceptor = EventAcceptor(
            self.database, self.definitions, self.hints, self.ids, self.traces, turns, runtime.clock
        )
        self.deliverer = MessageDeliverer(self.acceptor, self.event_limits)

    def event_service(self) -> EventService:
        """Everything about events."""
        grace_ms = self.settings.functions.key_rotation_grace_ms
        sink = QueueSink(self.reads, self.sealer, self.deliverer, key_grace_ms=grace_ms)
        sends = SendService(self.acceptor, self.event_limits, self.submissions)
        return EventService(sends, EventReader(self.reads), sink)

    def run_service(self, ends: RunEnds, watches: WatchService, reader: RunReader) -> RunService:
        """Everything about runs."""
        database, definitions, hints = self.database, self.definitions, self.hints
        limits = StartLimits(
            data_bytes=self.settings.limits.start_bytes, key_bytes=self.settings.limits.idempotency_key_bytes
        )
        starter = RunStarter(self.starts, definitions, hints, self.ids, self.traces, self.runtime.clock)
        verbs = RunVerbs(
            RunCanceller(database, hints, self.traces),
            RunRetrier(database, definitions, hints),
            RunReplayer(database, definitions, hints, self.ids, self.traces),
        )
        starts = StartService(starter, reader, limits, self.submissions, self.theirs)
        return RunService(starts, verbs, reader, ends, watches, limits)


def build(settings: Settings, runtime: Runtime) -> list[Component]:
    """The components of ingest, lowest dependency first; opens nothing.

    Ready means that the database answers. NATS is no condition: without it work is found a little later.
    """
    parts = _Parts(settings, runtime)
    bus = parts.bus
    runtime.health.observe("nats", lambda: "connected" if bus.connected else "away")
    watch_bus(runtime.metrics, bus)
    watch_pools(runtime.metrics, parts.database, parts.starts, parts.reads)
    watch_clock(runtime.metrics, parts.theirs)
    reader = RunReader(parts.reads)
    ends = RunEnds(reader, runtime.clock)
    changes_reader = RunChangeReader(parts.reads)
    changes = RunChanges(changes_reader, runtime.clock)
    watches = WatchService(changes_reader, changes, runtime.clock)
    services: list[Registration] = [
        (event_service_pb2_grpc.add_EventServiceServicer_to_server, parts.event_service()),
        (run_service_pb2_grpc.add_RunServiceServicer_to_server, parts.run_service(ends, watches, reader)),
    ]
    server = RpcServer(
        settings.listen.grpc or settings.peers.ingest,
        services,
        authenticator=parts.authenticator,
        telemetry=runtime.telemetry,
        credentials=server_credentials(settings.security),
        plaintext=settings.security.plaintext,
        name="grpc-ingest",
        metrics=runtime.metrics,
        once=StoredOnce(NamedWrites(parts.database), parts.sealer, parts.ids),
    )
    # The last is drained first: who waits for a run is let go, and streams end, before the server waits for its calls.
    return [
        DatabaseComponent(parts.database, runtime.health),
        _Starts(parts.starts, runtime.health),
        _Reads(parts.reads, runtime.health),
        ClockKeeper(parts.reads, parts.theirs, runtime.health),
        KeyCheck(parts.reads, parts.sealer),
        parts.traces,
        bus,
        _bridge(settings, runtime, bus, parts.database, parts.deliverer),
        server,
        parts.submissions,
        ends,
        changes,
    ]


def _bridge(
    settings: Settings, runtime: Runtime, bus: Bus, database: Database, deliverer: MessageDeliverer
) -> QueueBridge:
    parts = ConsumerParts(
        bus=bus,
        database=database,
        deliverer=deliverer,
        turns=asyncio.Semaphore(_QUEUE_WRITERS),
        jitter=runtime.random,
        max_deliver=settings.queues.max_deliver,
    )
    bridge = QueueBridge(parts, runtime.clock, ack_wait_s=settings.queues.ack_wait_s)
    runtime.health.observe("queues", bridge.state)
    return bridge
