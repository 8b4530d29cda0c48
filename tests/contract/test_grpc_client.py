"""The gRPC client for internal callers, of both kinds of channels, before the real server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import grpc
import pytest
import runr_client
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runr.workflows.v1 import run_service_pb2, run_service_pb2_grpc
from runr_client import Fault, fault_of

from services.core.domain.errors import Conflict, FieldError, InvalidInput, Unavailable
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.status import DOMAIN, TABLE
from services.core.runtime.traceparent import extract
from tests.support.grpc_backend import ADMIN, VIEWER, rpc_server, serving
from tests.support.pages import page

Kind = Literal["aio", "blocking"]
KINDS: tuple[Kind, ...] = ("aio", "blocking")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GET = run_service_pb2.GetRunRequest(run_id="r1")
README = page("proto/README.md")


async def who(_: Any, context: Any) -> run_service_pb2.GetRunResponse:
    """Who calls, with how much time, in the output of a run."""
    response = run_service_pb2.GetRunResponse()
    told = {"tenant": caller().tenant, "left_s": context.time_remaining(), "trace": current_call().traceparent}
    response.run.output = json.dumps(told).encode()
    return response


async def watch(_: Any, context: Any) -> AsyncIterator[run_service_pb2.WatchRunResponse]:
    response = run_service_pb2.WatchRunResponse()
    response.run.output = json.dumps({"tenant": caller().tenant, "left_s": context.time_remaining()}).encode()
    yield response


def failing(error: Exception) -> dict[str, Any]:
    async def method(_: Any, __: Any) -> Any:
        raise error

    return {"run.GetRun": method}


@asynccontextmanager
async def calling(
    kind: Kind, methods: dict[str, Any], *, token: str | Callable[[], str] = ADMIN, **options: Any
) -> AsyncIterator[Callable[..., Any]]:
    """Calls a method of the run service; the answer, or the Fault."""
    async with serving(rpc_server(methods)) as server:
        address = str(server.address)
        if kind == "aio":
            async with runr_client.aio_channel(address, token=token, **options) as channel:

                async def call(method: str, request: Any, **how: Any) -> Any:
                    try:
                        return await getattr(run_service_pb2_grpc.RunServiceStub(channel), method)(request, **how)
                    except grpc.aio.AioRpcError as error:
                        return fault_of(error)

                yield call
        else:
            with runr_client.channel(address, token=token, **options) as blocking:

                def block(method: str, request: Any, how: dict[str, Any]) -> Any:
                    try:
                        return getattr(run_service_pb2_grpc.RunServiceStub(blocking), method)(request, **how)
                    except grpc.RpcError as error:
                        return fault_of(error)

                async def wait(method: str, request: Any, **how: Any) -> Any:
                    return await asyncio.to_thread(block, method, request, how)

                yield wait


def told(response: Any) -> dict[str, Any]:
    assert not isinstance(response, Fault), str(response)
    found: dict[str, Any] = json.loads(response.run.output)
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_every_call_has_its_token_its_tenant_and_a_deadline(kind: Kind) -> None:
    async with calling(kind, {"run.GetRun": who}, timeout_s=900.0) as call:
        own = told(await call("GetRun", GET))
        assert own["tenant"] == 1
        assert 700 < own["left_s"] < 1_000
        shorter = told(await call("GetRun", GET, timeout=300.0))
        assert 100 < shorter["left_s"] < 400
        other = told(await call("GetRun", GET, metadata=(("x-tenant-id", "acme"),)))
        assert other["tenant"] == 2
    async with calling(kind, {"run.GetRun": who}, tenant="acme") as call:
        assert told(await call("GetRun", GET))["tenant"] == 2


async def test_a_stream_has_its_token_and_no_deadline() -> None:
    async with serving(rpc_server({"run.WatchRun": watch})) as server:
        request = run_service_pb2.WatchRunRequest(run_id="r1")
        async with runr_client.aio_channel(str(server.address), token=ADMIN, tenant="acme") as channel:
            stream = run_service_pb2_grpc.RunServiceStub(channel).WatchRun(request)
            (message,) = [each async for each in stream]
        assert told(message) == {"tenant": 2, "left_s": None}

        def block() -> list[Any]:
            with runr_client.channel(str(server.address), token=ADMIN) as channel:
                return list(run_service_pb2_grpc.RunServiceStub(channel).WatchRun(request))

        (message,) = await asyncio.to_thread(block)
        assert told(message) == {"tenant": 1, "left_s": None}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_token_that_is_replaced_in_time_is_asked_for_at_each_call(kind: Kind) -> None:
    tokens = iter([VIEWER, "unknown", ADMIN])
    async with calling(kind, {"run.GetRun": who}, token=lambda: next(tokens)) as call:
        assert told(await call("GetRun", GET))
        refused = await call("GetRun", GET)
        assert (refused.code, refused.kind) == (grpc.StatusCode.UNAUTHENTICATED, "unauthenticated")
        assert told(await call("GetRun", GET))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_may_be_traced_and_named(kind: Kind) -> None:
    async with calling(kind, {"run.GetRun": who}) as call:
        traced = extract(told(await call("GetRun", GET, metadata=runr_client.traced(TRACEPARENT)))["trace"])
        asked = extract(TRACEPARENT)
        assert traced is not None
        assert asked is not None
        assert traced.trace_id == asked.trace_id
        # The server of this test has no store for names, and says so rather than ignore one.
        named = await call("GetRun", GET, metadata=runr_client.named("order-17"))
        assert named.code is grpc.StatusCode.UNIMPLEMENTED
        assert "Idempotency-Key" in named.message


@pytest.mark.parametrize("kind", KINDS)
async def test_what_failed_is_told_with_all_its_details(kind: Kind) -> None:
    faults = [FieldError(f"events[{number}].name", "is required" * 20) for number in range(100)]
    async with calling(kind, failing(InvalidInput.of_all(faults))) as call:
        fault = await call("GetRun", GET)
    assert (fault.code, fault.kind) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_input")
    assert [(each.path, each.message) for each in fault.fields] == [(each.path, each.message) for each in faults]
    assert not fault.may_pass
    async with calling(kind, failing(Conflict("the run has ended", reason="RUN_ENDED"))) as call:
        fault = await call("GetRun", GET)
    assert str(fault) == "FAILED_PRECONDITION: the run has ended (RUN_ENDED)"
    async with calling(kind, failing(Unavailable("away"))) as call:
        assert (await call("GetRun", GET)).may_pass
    async with calling(kind, failing(RuntimeError("secret"))) as call:
        fault = await call("GetRun", GET)
    assert (fault.kind, "secret" in str(fault)) == ("internal", False)
    assert fault.trace_id is not None
    assert len(fault.trace_id) == 32


@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_token_may_not_do_is_denied(kind: Kind) -> None:
    async with calling(kind, {}, token=VIEWER) as call:
        fault = await call("CancelRun", run_service_pb2.CancelRunRequest(run_id="r1"))
    assert (fault.code, fault.kind) == (grpc.StatusCode.PERMISSION_DENIED, "permission_denied")
    assert fault.metadata == {"ability": "workflows.run"}


async def test_a_service_that_is_not_there_is_a_fault_without_details() -> None:
    async with serving(rpc_server({})) as server:
        address = str(server.address)
    async with runr_client.aio_channel(address, token=ADMIN) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await run_service_pb2_grpc.RunServiceStub(channel).GetRun(GET, timeout=10)
    fault = fault_of(failed.value)
    assert (fault.kind, fault.reason, fault.may_pass) == ("", "", True)


async def test_health_is_the_standard_service_and_needs_no_token() -> None:
    async with (
        serving(rpc_server({})) as server,
        grpc.aio.insecure_channel(str(server.address)) as channel,
    ):
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("open_channel", [runr_client.channel, runr_client.aio_channel])
async def test_a_token_is_shown_to_nobody_on_the_way(open_channel: Any) -> None:
    for address in ("10.0.0.1:7101", "ingest:7101", "[2001:db8::1]:7101"):
        with pytest.raises(ValueError, match="TLS"):
            open_channel(address, token=ADMIN)
    with pytest.raises(ValueError, match="belong together"):
        open_channel("ingest:7101", token=ADMIN, tls=runr_client.Tls(certificate=b"x"))
    assert ADMIN not in repr(runr_client.Credentials(ADMIN, "acme"))
    for token in ("", " ", "ä", "a\nb"):
        with pytest.raises(ValueError, match="visible ASCII"):
            runr_client.Credentials(token).metadata()
    for key in ("", "two words", "x" * 256):
        with pytest.raises(ValueError, match="visible ASCII"):
            runr_client.named(key)
    with pytest.raises(ValueError, match="traceparent"):
        runr_client.traced("x")


async def test_the_client_in_the_readme_starts_a_run() -> None:
    asked: list[run_service_pb2.StartRunRequest] = []

    async def start(request: Any, _: Any) -> run_service_pb2.StartRunResponse:
        asked.append(request)
        if len(asked) > 1:
            raise Unavailable("away")
        response = run_service_pb2.StartRunResponse()
        response.run.id = "r1"
        return response

    code = next(block for block in README.blocks("python") if "aio_channel" in block)
    # Neither certificates nor a store for names are here.
    for written, here in (("tls=tls", "plaintext=True"), (', metadata=named("charge-o-1")', "")):
        assert written in code
        code = code.replace(written, here)
    code = "\n".join(line for line in code.splitlines() if "Tls.of" not in line)
    async with serving(rpc_server({"run.StartRun": start})) as server:
        names: dict[str, Any] = {}
        exec(code.replace("ingest.internal:7101", str(server.address)), names)
        assert await names["start"](ADMIN) == "r1"
        with pytest.raises(SystemExit, match="UNAVAILABLE: away"):
            await names["start"](ADMIN)
    assert (asked[0].workflow, asked[0].data) == ("charge", b'{"order_id": "o-1"}')


def test_the_readme_names_every_kind_and_the_domain() -> None:
    text = README.text
    assert DOMAIN in text
    assert {row.kind for row in TABLE} <= set(re.findall(r"`(\w+)`", text))
