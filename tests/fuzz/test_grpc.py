"""Any message to any method: never an internal error, never a hang, never another tenant's data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import MethodDescriptor
from hypothesis import strategies as st
from runr.workflows.v1 import (
    access_service_pb2,
    event_service_pb2,
    function_service_pb2,
    run_service_pb2,
    schedule_service_pb2,
    worker_service_pb2,
    workflow_service_pb2,
)

from tests.fuzz.conftest import Stage
from tests.support.fuzzing import fuzz
from tests.support.random_messages import messages

FILES = {
    access_service_pb2: "scheduler",
    event_service_pb2: "ingest",
    function_service_pb2: "executor",
    run_service_pb2: "ingest",
    schedule_service_pb2: "scheduler",
    worker_service_pb2: "executor",
    workflow_service_pb2: "scheduler",
}
METHODS: dict[str, tuple[MethodDescriptor, str]] = {
    f"{service.name}/{method.name}": (method, peer)
    for file, peer in FILES.items()
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
FEW = 12
# Of the hour: the rest is for REST and for the parsers.
SHARE = 0.4 / len(METHODS)
CALL_S = 60.0
ANSWERS = 3
BROKEN = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}


@pytest.fixture(scope="module")
def channels(stage: Stage) -> Iterator[dict[str, grpc.Channel]]:
    made = {peer: grpc.insecure_channel(stage.stack.address(peer)) for peer in ("ingest", "scheduler", "executor")}
    yield made
    for channel in made.values():
        channel.close()


def raw(message: Any) -> bytes:
    return bytes(message if isinstance(message, bytes) else message.SerializeToString())


def call(
    stage: Stage, channel: grpc.Channel, method: MethodDescriptor, requests: list[Any], headers: dict[str, str]
) -> None:
    """One call, judged."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    form = message_factory.GetMessageClass(method.output_type)
    metadata = [("authorization", f"Bearer {stage.token}"), *headers.items()]
    options: Any = {"metadata": metadata, "timeout": CALL_S}
    read = {"request_serializer": raw, "response_deserializer": form.FromString}
    answers: list[Any] = []
    try:
        if method.client_streaming:
            # They go on until their client has no more to say.
            stream = channel.stream_stream(path, **read)(iter(requests), **options)
            answers = list(itertools.islice(stream, ANSWERS))
            stream.cancel()
        elif method.server_streaming:
            stream = channel.unary_stream(path, **read)(requests[0], **options)
            answers = list(itertools.islice(stream, 1))
            stream.cancel()
        else:
            answers = [channel.unary_unary(path, **read)(requests[0], **options)]
    except grpc.RpcError as error:
        if error.code() in BROKEN or not all(child.runs for child in stage.stack.children.values()):
            raise
        stage.check(error.details().encode(), *(_bytes(value) for _, value in error.trailing_metadata() or ()))
    stage.check(*(answer.SerializeToString() for answer in answers))


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@pytest.mark.parametrize("name", METHODS)
def test_no_message_breaks_a_method(stage: Stage, channels: dict[str, grpc.Channel], name: str) -> None:
    method, peer = METHODS[name]
    request = messages(method.input_type, [text for texts in stage.known.values() for text in texts])
    one = request | st.binary(max_size=60)
    headers = st.sampled_from(
        [*({},) * 6, {"x-tenant-id": stage.known["tenant"][-1]}, {"idempotency-key": "k"}, {"x-tenant-id": "x"}]
    )
    values = st.tuples(st.lists(one, min_size=1, max_size=4 if method.client_streaming else 1), headers)

    def judge(value: tuple[list[Any], dict[str, str]]) -> None:
        (*_, last) = value[0]
        if name == "AccessService/DeleteProject" and getattr(last, "project", "default") == "default":
            return  # then there would be little left to try
        call(stage, channels[peer], method, *value)

    fuzz(judge, values, few=FEW, share=SHARE)


def test_every_service_of_the_protos_is_tried() -> None:
    pool = descriptor_pool.Default()
    package = run_service_pb2.DESCRIPTOR.package
    assert {name.partition("/")[0] for name in METHODS} == {
        *("AccessService", "EventService", "FunctionService", "RunService"),
        *("ScheduleService", "WorkerService", "WorkflowService"),
    }
    assert all(pool.FindServiceByName(f"{package}.{name.partition('/')[0]}") for name in METHODS)
