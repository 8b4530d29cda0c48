"""The gateway when a service is away or fails, its traces, its health, and its end."""

from __future__ import annotations

import asyncio
import contextlib
from importlib.metadata import version
from typing import Any

import aiohttp
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import RateLimited
from services.core.rpc.call_context import current_call
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.telemetry import start_telemetry
from tests.support.grpc_backend import ADMIN, rpc_server, serving
from tests.support.http_gateway import Client, gateway
from tests.support.waiting import until

TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"


async def get_run(request: Any, context: Any) -> Any:
    return run_service_pb2.GetRunResponse(run=resources_pb2.Run(id=request.run_id, trace_id=current_call().trace_id))


async def test_a_service_that_is_away_is_503_and_is_found_again() -> None:
    async with gateway({"run.GetRun": get_run}) as client:
        assert (await client.call("GET", "/api/runs/r")).status == 200
        ready = await client.call("GET", "/readyz")
        assert (ready.status, ready.json["version"]) == (200, version("runr-engine"))
        await client.server.stop()
        away = await client.call("GET", "/api/runs/r")
        away.problem(503)
        assert away.json["detail"] == "ingest cannot be reached; try again"
        assert int(away.headers["Retry-After"]) >= 1
        ready = await client.call("GET", "/readyz", token=None)
        assert (ready.status, ready.json["checks"]["ingest"]) == (503, "cannot be reached")
        assert (await client.call("GET", "/healthz", token=None)).status == 200
        async with serving(rpc_server({"run.GetRun": get_run}, address=client.server.address)):

            async def found_again() -> bool:
                return bool((await client.call("GET", "/api/runs/r")).status == 200)

            await until(found_again)
            assert (await client.call("GET", "/api/readyz", token=None)).status == 200


async def test_a_call_in_progress_when_its_service_is_killed_is_503() -> None:
    entered = asyncio.Event()

    async def never(request: Any, context: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    async with gateway({"run.GetRun": never}) as client:
        waiting = asyncio.create_task(client.call("GET", "/api/runs/r"))
        await entered.wait()
        await client.server.stop()
        (await asyncio.wait_for(waiting, 5)).problem(503)


async def test_a_fault_of_a_service_is_500_and_tells_nothing() -> None:
    async def fail(request: Any, context: Any) -> Any:
        raise RuntimeError("password=hunter2")

    async with gateway({"run.GetRun": fail}) as client:
        reply = await client.call("GET", "/api/runs/r", headers={"traceparent": TRACEPARENT})
    assert reply.problem(500)["trace_id"] == TRACE_ID
    assert b"hunter2" not in reply.body


async def test_an_answer_that_cannot_be_shown_is_500() -> None:
    async def strange(request: Any, context: Any) -> Any:
        answer = run_service_pb2.GetRunResponse()
        answer.run.created_at.nanos = -5
        return answer

    async with gateway({"run.GetRun": strange}) as client:
        reply = await client.call("GET", "/api/runs/r")
    reply.problem(500)


async def test_a_rate_limit_says_when_to_come_again() -> None:
    async def slower(request: Any, context: Any) -> Any:
        raise RateLimited("too many", metadata={"retry_after_s": "7"})

    async with gateway({"run.GetRun": slower}) as client:
        reply = await client.call("GET", "/api/runs/r")
    reply.problem(429)
    assert reply.headers["Retry-After"] == "7"


async def test_every_request_has_a_trace_id_that_its_service_knows() -> None:
    async with gateway({"run.GetRun": get_run}) as client:
        plain = await client.call("GET", "/api/runs/r")
        traced = await client.call("GET", "/api/runs/r", headers={"traceparent": TRACEPARENT})
        broken = await client.call("GET", "/api/runs/r", headers={"traceparent": "nonsense"})
    assert plain.json["trace_id"] == plain.headers["x-trace-id"]
    assert traced.json["trace_id"] == traced.headers["x-trace-id"] == TRACE_ID
    assert broken.json["trace_id"] == broken.headers["x-trace-id"] != plain.headers["x-trace-id"]


async def test_a_tracestate_goes_on_to_the_service() -> None:
    seen: list[str] = []

    async def note(request: Any, context: Any) -> Any:
        seen.append(current_call().traceparent)
        return await get_run(request, context)

    async with gateway({"run.GetRun": note}) as client:
        for state in ("a=1, b=2", "a=1,a=2", "x" * 600):
            await client.call("GET", "/api/runs/r", headers={"traceparent": TRACEPARENT, "tracestate": state})
        await client.call("GET", "/api/runs/r", headers={"tracestate": "a=1"})
    assert [text.partition(" ")[0] for text in seen[:1]] == ["a=1,b=2"]
    assert [text.partition("-")[0] for text in seen] == ["a=1,b=2 00", "00", "00", "00"]


async def test_spans_go_from_the_caller_through_the_gateway_to_the_service() -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_telemetry("test", TelemetrySettings(), exporter=exporter)
    server = rpc_server({"run.GetRun": get_run}, telemetry=telemetry)
    async with gateway({}, telemetry=telemetry, server=server) as client:
        await client.call("GET", "/api/runs/r", headers={"traceparent": TRACEPARENT})
        await client.call("GET", "/api/nothing")
    telemetry.flush()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    telemetry.close()
    http = spans["GET /api/runs/{run_id}"]
    rpc = spans["runr.workflows.v1.RunService/GetRun"]
    assert http.parent is not None
    assert rpc.parent is not None
    assert f"{http.parent.span_id:016x}" == PARENT_ID
    assert rpc.parent.span_id == http.context.span_id
    assert {f"{span.context.trace_id:032x}" for span in (http, rpc)} == {TRACE_ID}
    assert http.attributes is not None
    assert http.attributes["http.response.status_code"] == 200
    assert spans["GET unknown path"].parent is None


async def test_a_client_that_does_not_take_its_answer_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    async def large(request: Any, context: Any) -> Any:
        answer = run_service_pb2.GetRunResponse(run=resources_pb2.Run(id="r"))
        answer.run.output = b'"' + b"x" * (24 << 20) + b'"'
        return answer

    async with gateway({"run.GetRun": large}, write_timeout_s=0.3) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port, limit=1 << 10)
        writer.write(f"GET /api/runs/r HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
        got = 0
        await until(lambda: "a client does not take its answer" in caplog.messages)
        with contextlib.suppress(ConnectionError):
            while chunk := await asyncio.wait_for(reader.read(1 << 20), 30):
                got += len(chunk)
        writer.close()
    assert got < 24 << 20


async def call_until_refused(client: Client) -> None:
    while True:
        await client.call("GET", "/healthz", headers={"Connection": "close"})


async def test_a_request_in_progress_survives_the_drain_of_the_gateway() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, context: Any) -> Any:
        entered.set()
        await leave.wait()
        return run_service_pb2.GetRunResponse(run=resources_pb2.Run(id="r"))

    async with gateway({"run.GetRun": slow}) as client:
        waiting = asyncio.create_task(client.call("GET", "/api/runs/r"))
        await entered.wait()
        draining = asyncio.create_task(client.http.drain())
        with pytest.raises(aiohttp.ClientConnectionError):
            await call_until_refused(client)
        assert not draining.done()
        leave.set()
        assert (await waiting).status == 200
        await asyncio.wait_for(draining, 30)
