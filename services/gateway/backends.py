"""The services behind the gateway: one channel each, a stub for every method, and streams for what comes often."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import grpc
from runr.workflows.v1 import (
    access_service_pb2_grpc,
    event_service_pb2_grpc,
    function_service_pb2_grpc,
    resources_pb2,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
    workflow_service_pb2_grpc,
)

from services.core.rpc.channel import call_metadata, is_serving, open_channel
from services.core.rpc.status import from_rpc_error
from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.health import Health, NotReady
from services.core.runtime.ids import UlidFactory
from services.core.runtime.lifecycle import Component
from services.core.runtime.parse import Address
from services.core.runtime.pooled_random import PooledRandom
from services.gateway.asking import Peer, only_reads
from services.gateway.submit.item import BIG_BYTES, FORMS
from services.gateway.submit.submitter import Resolve, Submitter, addresses_of
from services.gateway.submit.told_clock import ToldClock


class Credentials(NamedTuple):
    """Who asks: a token (None where none is needed), one of its tenants (None: its own), and the trace; and the name of
    a write that is to be carried out once (None: it has none).
    """

    token: str | None
    tenant: str | None
    trace: str | None
    name: str | None = None


_STUBS: Mapping[str, tuple[str, Any]] = {
    "runr.workflows.v1.EventService": ("ingest", event_service_pb2_grpc.EventServiceStub),
    "runr.workflows.v1.RunService": ("ingest", run_service_pb2_grpc.RunServiceStub),
    "runr.workflows.v1.WorkflowService": ("scheduler", workflow_service_pb2_grpc.WorkflowServiceStub),
    "runr.workflows.v1.ScheduleService": ("scheduler", schedule_service_pb2_grpc.ScheduleServiceStub),
    "runr.workflows.v1.AccessService": ("scheduler", access_service_pb2_grpc.AccessServiceStub),
    "runr.workflows.v1.FunctionService": ("executor", function_service_pb2_grpc.FunctionServiceStub),
}


class Backends(Component):
    """Channels to `addresses` (service name → address), opened by `start`; with TLS where there are `credentials`."""

    name = "backends"

    def __init__(
        self,
        addresses: Mapping[str, Address],
        health: Health,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        clock: Clock | None = None,
        source: random.Random | None = None,
        resolve: Resolve = addresses_of,
    ) -> None:
        """`clock` and `source` are what ids of runs and events are made of, `resolve` finds the replicas of ingest."""
        self._addresses = addresses
        self._credentials = credentials
        clock = clock or SystemClock()
        told = ToldClock(clock)
        ids = UlidFactory(told, source or PooledRandom())
        self._submitters = {
            rpc: Submitter(addresses["ingest"], form, dial=self._dial, ids=ids, told=told, clock=clock, resolve=resolve)
            for rpc, form in FORMS.items()
        }
        self._clock = clock
        self._peers: dict[str, Peer] = {}
        self._stubs: dict[str, Any] = {}
        # Only ingest: without it nothing can be done, while a gateway that leaves its balancer because one of the other
        # two is away would take everything down with it.
        health.register("ingest", self._check_ingest)

    async def start(self) -> None:
        """Opens the channels; connects on the first call."""
        self._peers = {
            name: Peer(name, open_channel(address, credentials=self._credentials), self._clock)
            for name, address in self._addresses.items()
        }
        self._stubs = {name: stub(self._peers[peer].channel) for name, (peer, stub) in _STUBS.items()}
        for submitter in self._submitters.values():
            submitter.start()

    async def drain(self) -> None:
        """Nothing: the requests in progress need the channels."""

    async def stop(self) -> None:
        """Closes the channels; a second call does nothing."""
        for submitter in self._submitters.values():
            await submitter.stop()
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.channel.close()

    async def call(self, rpc: str, request: Any, *, credentials: Credentials, timeout_s: float) -> Any:
        """The response of a unary method. Raises the DomainError behind its status."""
        token, tenant, trace, name = credentials
        submitter = self._submitters.get(rpc) if name is None else None
        if submitter is not None and (size := request.ByteSize()) <= BIG_BYTES:
            sent = resources_pb2.Credentials(token=token, tenant=tenant, traceparent=trace)
            return await submitter.submit(request, sent, size=size, timeout_s=timeout_s)
        service, _, method = rpc.removeprefix("/").partition("/")
        metadata = call_metadata(token, tenant=tenant, trace=trace, name=name)
        peer, call = self._peers[_STUBS[service][0]], getattr(self._stubs[service], method)
        return await peer.ask(call, request, metadata=metadata, timeout_s=timeout_s, reads=only_reads(method))

    async def stream(self, rpc: str, request: Any, *, credentials: Credentials) -> AsyncGenerator[Any, None]:
        """The answers of a streaming method, each read when it is asked for; the call ends with the iteration.

        Raises the DomainError behind its status. Who lets go of it earlier closes it.
        """
        service, _, method = rpc.removeprefix("/").partition("/")
        token, tenant, trace, _ = credentials
        call = getattr(self._stubs[service], method)(request, metadata=call_metadata(token, tenant=tenant, trace=trace))
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, peer=_STUBS[service][0]) from error
        finally:
            call.cancel()

    def _dial(self, address: Address) -> Any:
        return open_channel(address, credentials=self._credentials, name=self._addresses["ingest"].host)

    async def _check_ingest(self) -> None:
        try:
            serving = await is_serving(self._peers["ingest"].channel)
        except (grpc.aio.AioRpcError, KeyError):
            raise NotReady("cannot be reached") from None
        if not serving:
            raise NotReady("drains")
