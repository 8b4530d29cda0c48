"""Whatever a request of any method holds, it is answered or refused by name: never a fault of the engine.

That no service has logged one either is checked at the end of all stories.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from hypothesis import HealthCheck, given, settings
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    run_service_pb2,
    schedule_service_pb2,
    workflow_service_pb2,
)

from services.core.domain.errors import Malformed
from services.core.rpc.channel import call_metadata
from services.core.rpc.status import from_rpc_error
from tests.support.hostile import METHODS, SERVICES, hostile_requests
from tests.support.postgres import run_apart
from tests.support.stack import Stack

TRIGGERS = [
    {"event": "go"},
    {"cron": "* * * * *"},
    {"cron": "0 9 * * *", "timezone": "America/New_York"},
    {"cron": "0 9 * * *", "timezone": "Pacific/Kiritimati"},
]
DAY = 86_400
FIRST, LAST = -62_135_596_800, 253_402_300_799
SECONDS = (FIRST, FIRST + 1, FIRST + DAY, -1, 0, 1_790_000_000, LAST - DAY, LAST)
DAYS = ("", "0001-01-01", "0001-01-31", "0003-09-27", "1970-01-01", "2026-01-01", "9997-04-05", "9999-12-31")


class Caller:
    """Calls any method of a tenant that has a workflow, a run of it and an event."""

    def __init__(self, stack: Stack, token: str, known: dict[str, Any]) -> None:
        self.known = known
        self._token = token
        addresses = {
            service.full_name: stack.address(name) for name, services in SERVICES.items() for service in services
        }
        self._channels = {name: grpc.insecure_channel(address) for name, address in addresses.items()}

    def code(self, method: MethodDescriptor, request: Any) -> grpc.StatusCode:
        """The status that a call is answered with; a refusal names what it refuses."""
        service = method.containing_service.full_name
        call = self._channels[service].unary_unary(
            f"/{service}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )
        try:
            call(request, metadata=call_metadata(self._token), timeout=30)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            if code is grpc.StatusCode.INVALID_ARGUMENT:
                refused = from_rpc_error(error)
                assert isinstance(refused, Malformed) or refused.errors, refused
            return code
        return grpc.StatusCode.OK

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


@pytest.fixture(scope="module")
def caller(stack: Stack) -> Iterator[Caller]:
    async def prepare() -> Caller:
        await stack.revive()
        async with stack.tenant() as rest:
            declared = {"workflows": [{"name": "w", "triggers": TRIGGERS}]}
            await rest.ok("PUT", "/projects/default/workflows", declared)
            sent = await rest.send("go")
            known = {
                **{"run_id": sent["runs"][0], "event_id": sent["id"], "project": "default", "workflow": "w"},
                **{"key": True, "filter": True, "action": 1, "trigger": 1, "is_active": True, "name": "go"},
            }
            return Caller(stack, rest.token, known)

    made = run_apart(prepare())
    yield made
    made.close()


ANSWERS = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,  # what is for users who have signed in, and this is a token of the installation
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def test_no_request_is_an_internal_error(caller: Caller) -> None:
    served = [
        method
        for method in METHODS
        if caller.code(method, message_factory.GetMessageClass(method.input_type)())
        is not grpc.StatusCode.UNIMPLEMENTED
    ]
    assert len(served) > 30

    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
    @given(hostile_requests(served, caller.known))
    def attack(made: tuple[MethodDescriptor, Any]) -> None:
        assert caller.code(*made) in ANSWERS

    attack()


def _requests() -> Iterator[tuple[str, Any]]:
    """Every field that is an instant or a day, at the ends of its range, alone and in pairs."""
    for place, (since, until) in enumerate(itertools.product((None, *SECONDS), repeat=2)):
        key = schedule_service_pb2.ScheduleKey(project="default", workflow="w", trigger=1 + place % 3)
        ranges = {
            "BackfillSchedule": schedule_service_pb2.BackfillScheduleRequest(key=key, dry_run=True),
            "ListRuns": run_service_pb2.ListRunsRequest(project="default", tags=["a"]),
            "ListEvents": event_service_pb2.ListEventsRequest(name_prefix="g"),
        }
        for name, request in ranges.items():
            _set_range(request, since, until)
            yield name, request
        job = schedule_service_pb2.StartBulkJobRequest(
            project="default", action=schedule_service_pb2.BULK_ACTION_CANCEL, dry_run=True
        )
        job.filter.SetInParent()
        _set_range(job.filter, since, until)
        yield "StartBulkJob", job
    for seconds in SECONDS:
        start = run_service_pb2.StartRunRequest(project="default", workflow="w")
        start.at.seconds, start.at.nanos = seconds, 999_999_999
        yield "StartRun", start
        token = access_service_pb2.CreateTokenRequest(name="t", abilities=["workflows.view"])
        token.expires_at.seconds, token.expires_at.nanos = seconds, 999_999_999
        yield "CreateToken", token
    for first, last in itertools.product(DAYS, repeat=2):
        yield "GetUsage", workflow_service_pb2.GetUsageRequest(from_day=first, to_day=last)


def _set_range(message: Any, since: int | None, until: int | None) -> None:
    for field, seconds in (("since", since), ("until", until)):
        if seconds is not None:
            getattr(message, field).seconds = seconds


def test_no_instant_is_too_early_or_too_late_to_be_answered(caller: Caller) -> None:
    methods = {method.name: method for method in METHODS}
    for name, request in _requests():
        assert caller.code(methods[name], request) in ANSWERS, (name, request)


@pytest.mark.parametrize("raw", [b"\x0a\xff\x01ab", b"\xff" * 20], ids=["cut off", "no tag"])
def test_bytes_that_are_no_message_are_the_callers_fault(caller: Caller, raw: bytes) -> None:
    class Raw:
        def SerializeToString(self) -> bytes:
            return raw

    for method in METHODS:
        code = caller.code(method, Raw())
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED), method.full_name
