"""What a gRPC server tells of itself: its services and their protos, to whoever has a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.core.rpc.channel import call_metadata, open_channel
from tests.support.grpc_backend import VIEWER, rpc_server, serving


async def reflected(asked: Sequence[Any], token: str | None = VIEWER) -> list[Any]:
    """What a server answers, question by question."""
    async with serving(rpc_server({})) as server:
        channel = open_channel(server.address)
        try:
            stub = reflection_pb2_grpc.ServerReflectionStub(channel)
            call = stub.ServerReflectionInfo(iter(asked), metadata=call_metadata(token), timeout=30)
            return [answer async for answer in call]
        finally:
            await channel.close()


async def test_the_services_are_those_that_are_served() -> None:
    (answer,) = await reflected([reflection_pb2.ServerReflectionRequest(list_services="")])
    names = {each.name for each in answer.list_services_response.service}
    ours = {name.rpartition(".")[2] for name in names if name.startswith("runr.workflows.v1.")}
    assert ours == {
        "AccessService",
        "EventService",
        "FunctionService",
        "RunService",
        "ScheduleService",
        "WorkflowService",
    }
    assert names - {f"runr.workflows.v1.{name}" for name in ours} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_a_service_is_found_with_all_that_its_messages_need() -> None:
    asked = ("runr.workflows.v1.RunService", "runr.workflows.v1.Run", "runr.workflows.v1.Nothing")
    found = await reflected([reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in asked])
    for answer in found[:2]:
        files = [FileDescriptorProto.FromString(raw) for raw in answer.file_descriptor_response.file_descriptor_proto]
        told = {each.name for each in files}
        assert {needed for each in files for needed in each.dependency} <= told
        assert "runr/workflows/v1/resources.proto" in told
    assert found[2].error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


@pytest.mark.parametrize("token", [None, "unknown"])
async def test_a_stranger_is_told_nothing(token: str | None) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await reflected([reflection_pb2.ServerReflectionRequest(list_services="")], token)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
