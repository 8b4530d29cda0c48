"""Real gRPC servers with hand-written servicers: the seam between the gateway and the services."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from runr.workflows.v1 import (
    access_service_pb2_grpc,
    event_service_pb2,
    event_service_pb2_grpc,
    function_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
    schedule_service_pb2_grpc,
    workflow_service_pb2_grpc,
)

from services.core.domain.caller import EVENTS_SEND, WORKFLOWS_MANAGE, WORKFLOWS_RUN, WORKFLOWS_VIEW, Caller
from services.core.domain.errors import PermissionDenied, Unauthenticated, Unsupported
from services.core.rpc.call_context import Call, enter_call
from services.core.rpc.server import RpcServer
from services.core.rpc.submissions import Kind, Submission, Submissions
from services.core.runtime.clock import SystemClock
from services.core.runtime.owned_ids import OwnedIds
from services.core.runtime.parse import Address
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.telemetry import Telemetry, start_telemetry

ADMIN, VIEWER = "admin-token-0123456789", "viewer-token-0123456789"
EVERYTHING = frozenset({WORKFLOWS_VIEW, WORKFLOWS_MANAGE, WORKFLOWS_RUN, EVENTS_SEND})
LOOPBACK = Address("127.0.0.1", 0)

_SERVICES: Mapping[str, tuple[Any, Any]] = {
    "event": (
        event_service_pb2_grpc.add_EventServiceServicer_to_server,
        event_service_pb2_grpc.EventServiceServicer,
    ),
    "run": (run_service_pb2_grpc.add_RunServiceServicer_to_server, run_service_pb2_grpc.RunServiceServicer),
    "workflow": (
        workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server,
        workflow_service_pb2_grpc.WorkflowServiceServicer,
    ),
    "schedule": (
        schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server,
        schedule_service_pb2_grpc.ScheduleServiceServicer,
    ),
    "access": (
        access_service_pb2_grpc.add_AccessServiceServicer_to_server,
        access_service_pb2_grpc.AccessServiceServicer,
    ),
    "function": (
        function_service_pb2_grpc.add_FunctionServiceServicer_to_server,
        function_service_pb2_grpc.FunctionServiceServicer,
    ),
}


_STREAMED = {
    "run.StartRun": ("SubmitStarts", "/runr.workflows.v1.RunService/StartRun", run_service_pb2.SubmitStartsResponse),
    "event.SendEvents": (
        "SubmitEvents",
        "/runr.workflows.v1.EventService/SendEvents",
        event_service_pb2.SubmitEventsResponse,
    ),
}
"""Unary methods whose requests come over a stream too."""


class TwoTokens:
    """Knows one token with all abilities and one that may only look; both are members of tenants 1 and "acme"."""

    async def authenticate(self, token: str, tenant_hint: str | None) -> Caller:
        if token not in (ADMIN, VIEWER):
            raise Unauthenticated("this token is not known")
        if tenant_hint not in (None, "acme"):
            raise PermissionDenied("you are not a member of this tenant")
        abilities = EVERYTHING if token == ADMIN else frozenset({WORKFLOWS_VIEW})
        return Caller(tenant=2 if tenant_hint else 1, token_id=token[:5], abilities=abilities)

    async def denied(self, caller: Caller, method: str) -> None:
        """Nobody asks."""


def no_telemetry() -> Telemetry:
    return start_telemetry("test", TelemetrySettings())


def rpc_server(
    methods: Mapping[str, Any],
    *,
    address: Address = LOOPBACK,
    telemetry: Telemetry | None = None,
    grace_s: float = 5.0,
    leave_s: float = 0.0,
) -> RpcServer:
    """A server of all services; `methods` are named like "run.GetRun", the others are not overridden."""
    authenticator, telemetry = TwoTokens(), telemetry or no_telemetry()
    submissions = Submissions(authenticator, telemetry, SystemClock(), OwnedIds(b"secret"))
    registrations = []
    for service, (add, base) in _SERVICES.items():
        own = {
            name.partition(".")[2]: staticmethod(method)
            for name, method in methods.items()
            if name.partition(".")[0] == service
        }
        streams = {
            stream: staticmethod(_streamed(submissions, rpc, form, methods.get(name, _not_here)))
            for name, (stream, rpc, form) in _STREAMED.items()
            if name.partition(".")[0] == service
        }
        registrations.append((add, type(f"Fake{base.__name__}", (base,), streams | own)()))
    return RpcServer(
        address,
        registrations,
        authenticator=authenticator,
        telemetry=telemetry,
        grace_s=grace_s,
        leave_s=leave_s,
    )


async def _not_here(request: Any, context: Any) -> Any:
    raise Unsupported("this method is not in this version")


def _streamed(submissions: Submissions, rpc: str, form: Any, method: Any) -> Any:
    """The stream of a unary method that a test has written."""

    async def take(submission: Submission) -> None:
        async def carry_out() -> None:
            enter_call(Call(rpc, submission.caller, submission.trace or "", ""))
            try:
                submission.answer(await method(submission.request, None))
            except Exception as error:
                submission.fail(error)

        tasks.add(task := asyncio.create_task(carry_out()))
        task.add_done_callback(tasks.discard)

    async def stream(request_iterator: Any, context: Any) -> Any:
        async for message in submissions.serve(Kind(rpc, form, take), request_iterator):
            yield message

    tasks: set[asyncio.Task[None]] = set()
    return stream


@asynccontextmanager
async def serving(server: Any) -> AsyncIterator[Any]:
    """A started component, stopped at the end."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
