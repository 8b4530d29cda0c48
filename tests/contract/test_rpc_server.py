"""The gRPC server and channel of every service: credentials, permissions, errors, traces, life and death."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from runr.workflows.v1 import (
    access_service_pb2,
    access_service_pb2_grpc,
    event_service_pb2,
    event_service_pb2_grpc,
    resources_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)

from services.core.domain.errors import (
    Conflict,
    DomainError,
    FieldError,
    InvalidInput,
    Malformed,
    NotFound,
    PermissionDenied,
    RateLimited,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.channel import call_metadata, is_serving, open_channel
from services.core.rpc.server import RpcServer
from services.core.rpc.status import from_rpc_error
from services.core.runtime.parse import Address
from tests.support.grpc_backend import ADMIN, VIEWER, TwoTokens, no_telemetry, rpc_server, serving
from tests.support.logged import complaints
from tests.support.waiting import until

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@asynccontextmanager
async def connected(server: RpcServer) -> AsyncIterator[Any]:
    async with serving(server):
        channel = open_channel(server.address)
        try:
            yield channel
        finally:
            await channel.close()


async def get_run(channel: Any, *, token: str | None = ADMIN, **metadata: str) -> run_service_pb2.GetRunResponse:
    """Calls GetRun; the DomainError behind a failed call."""
    stub = run_service_pb2_grpc.RunServiceStub(channel)
    try:
        answer: run_service_pb2.GetRunResponse = await stub.GetRun(
            run_service_pb2.GetRunRequest(run_id="r1"), metadata=call_metadata(token, **metadata), timeout=10
        )
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    return answer


def raising(error: Exception) -> Any:
    async def method(request: Any, context: Any) -> Any:
        raise error

    return method


async def who(request: Any, context: Any) -> run_service_pb2.GetRunResponse:
    """Answers who calls, in the fields of a run."""
    found = caller()
    answer = run_service_pb2.GetRunResponse()
    answer.run.id, answer.run.attempt = found.token_id, found.tenant
    answer.run.trace_id = current_call().traceparent
    return answer


async def test_the_servicer_knows_the_caller_and_the_trace() -> None:
    async with connected(rpc_server({"run.GetRun": who})) as channel:
        answer = await get_run(channel, tenant="acme", trace=TRACEPARENT)
    assert (answer.run.id, answer.run.attempt, answer.run.trace_id) == ("admin", 2, TRACEPARENT)


@pytest.mark.parametrize(
    ("token", "tenant", "expected"),
    [
        (None, None, Unauthenticated),
        ("nobody-knows-this-token", None, Unauthenticated),
        (ADMIN, "foreign", PermissionDenied),
    ],
)
async def test_a_caller_must_be_known(token: str | None, tenant: str | None, expected: type[DomainError]) -> None:
    async with connected(rpc_server({"run.GetRun": who})) as channel:
        with pytest.raises(expected):
            await get_run(channel, token=token, **({"tenant": tenant} if tenant else {}))


async def test_a_method_asks_for_its_permission() -> None:
    async def cancel(request: Any, context: Any) -> Any:
        return run_service_pb2.CancelRunResponse()

    async with connected(rpc_server({"run.CancelRun": cancel, "run.GetRun": who})) as channel:
        stub = run_service_pb2_grpc.RunServiceStub(channel)
        request = run_service_pb2.CancelRunRequest(run_id="r1")
        await stub.CancelRun(request, metadata=call_metadata(ADMIN))
        await get_run(channel, token=VIEWER)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.CancelRun(request, metadata=call_metadata(VIEWER))
    error = from_rpc_error(caught.value)
    assert isinstance(error, PermissionDenied)
    assert error.metadata["ability"] == "workflows.run"


async def test_a_public_method_and_a_shared_stream_need_no_token() -> None:
    async def sign_in(request: Any, context: Any) -> Any:
        assert current_call().caller is None
        return access_service_pb2.CreateSessionResponse(secret="s")

    async def submit(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            answer = event_service_pb2.SubmitEventsResponse()
            for item in request.items:
                answer.items.add(number=item.number).response.results.add(id=item.credentials.token)
            yield answer

    server = rpc_server({"access.CreateSession": sign_in, "event.SubmitEvents": submit})
    async with connected(server) as channel:
        session = await access_service_pb2_grpc.AccessServiceStub(channel).CreateSession(
            access_service_pb2.CreateSessionRequest()
        )
        assert session.secret == "s"
        call = event_service_pb2_grpc.EventServiceStub(channel).SubmitEvents()
        sent = event_service_pb2.SubmitEventsRequest()
        sent.items.add(number=7).credentials.token = "t7"
        sent.items.add(number=8).credentials.token = "t8"
        await call.write(sent)
        got = await call.read()
        await call.done_writing()
    assert [(item.number, item.response.results[0].id) for item in got.items] == [(7, "t7"), (8, "t8")]


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput.of_all(
            [FieldError("events[3].name", "is too long"), FieldError("", "ünïcode")], reason="BAD_EVENT"
        ),
        Malformed.of("", "not JSON"),
        TooLarge.of("data", "has 300000 bytes, at most 262144 are allowed"),
        Unauthenticated("no"),
        PermissionDenied("no"),
        NotFound("no such run"),
        Conflict("the run has ended", reason="RUN_ENDED", metadata={"status": "completed"}),
        RateLimited("slower", metadata={"retry_after_s": "3"}),
        Unavailable("the database is away"),
        Unsupported("not in this version"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_error_arrives_as_it_was_raised(error: DomainError) -> None:
    async with connected(rpc_server({"run.GetRun": raising(error)})) as channel:
        with pytest.raises(type(error)) as caught:
            await get_run(channel)
    got = caught.value
    assert type(got) is type(error)
    assert (got.message, got.reason, got.errors) == (error.message, error.reason, error.errors)
    assert got.metadata == error.metadata


async def test_many_faults_all_arrive_where_they_are_welcome_and_never_break_a_call() -> None:
    faults = [FieldError(f"workflows[{index}].name", "must match the rule " + "x" * 80) for index in range(500)]
    server = rpc_server({"run.GetRun": raising(InvalidInput.of_all(faults))})
    async with connected(server) as channel:
        with pytest.raises(InvalidInput) as ours:
            await get_run(channel)
        assert list(ours.value.errors) == faults
        async with grpc.aio.insecure_channel(str(server.address)) as plain:
            stub = run_service_pb2_grpc.RunServiceStub(plain)
            with pytest.raises(grpc.aio.AioRpcError) as theirs:
                await stub.GetRun(run_service_pb2.GetRunRequest(), metadata=(("authorization", f"Bearer {ADMIN}"),))
    error = from_rpc_error(theirs.value)
    assert isinstance(error, InvalidInput)
    assert 10 < len(error.errors) < 500
    assert int(error.metadata["errors_omitted"]) == 500 - len(error.errors)


async def test_long_and_strange_texts_never_break_a_call() -> None:
    error = InvalidInput.of("a\ud800", "lone \ud800 surrogate, " + "ü" * 5_000)
    async with connected(rpc_server({"run.GetRun": raising(error)})) as channel:
        with pytest.raises(InvalidInput) as caught:
            await get_run(channel)
    assert caught.value.message.startswith("a?: lone ? surrogate")
    assert caught.value.errors[0].path == "a?"


async def test_a_fault_of_ours_is_masked_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        async with connected(rpc_server({"run.GetRun": raising(RuntimeError("password=hunter2"))})) as channel:
            with pytest.raises(DomainError) as caught:
                await get_run(channel, trace=TRACEPARENT)
    assert type(caught.value) is DomainError
    assert "hunter2" not in caught.value.message
    assert caught.value.metadata["trace_id"] == TRACEPARENT.split("-")[1]
    logged = next(record for record in caplog.records if record.name == "services.core.rpc.interceptor")
    assert logged.exc_info is not None
    assert "hunter2" in str(logged.exc_info[1])
    assert vars(logged)["trace_id"] == TRACEPARENT.split("-")[1]


async def test_a_method_that_is_not_there_says_so() -> None:
    async with connected(rpc_server({})) as channel:
        with pytest.raises(Unsupported, match="GetRun is not in this version"):
            await get_run(channel)
        with pytest.raises(Unauthenticated):
            await get_run(channel, token=None)
        call = run_service_pb2_grpc.RunServiceStub(channel).WatchRun(
            run_service_pb2.WatchRunRequest(), metadata=call_metadata(ADMIN)
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_stream_can_fail_after_it_has_begun() -> None:
    async def watch(request: Any, context: Any) -> AsyncIterator[Any]:
        yield run_service_pb2.WatchRunResponse(cursor="1")
        raise Unavailable("the database is away")

    async with connected(rpc_server({"run.WatchRun": watch})) as channel:
        call = run_service_pb2_grpc.RunServiceStub(channel).WatchRun(
            run_service_pb2.WatchRunRequest(), metadata=call_metadata(ADMIN)
        )
        assert (await call.read()).cursor == "1"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert isinstance(from_rpc_error(caught.value), Unavailable)


async def test_a_request_of_the_greatest_size_passes() -> None:
    sizes: list[int] = []

    async def send(request: Any, context: Any) -> Any:
        sizes.extend(len(event.data) for event in request.events)
        return event_service_pb2.SendEventsResponse()

    async with connected(rpc_server({"event.SendEvents": send})) as channel:
        request = event_service_pb2.SendEventsRequest()
        for _ in range(100):
            request.events.add(name="n" * 200, data=b" " * 262_144, id="i" * 255)
        stub = event_service_pb2_grpc.EventServiceStub(channel)
        await stub.SendEvents(request, metadata=call_metadata(ADMIN), timeout=20)
        request.events.add(name="n", data=b" " * 10_000_000)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.SendEvents(request, metadata=call_metadata(ADMIN), timeout=20)
    assert sizes == [262_144] * 100
    assert isinstance(from_rpc_error(caught.value), TooLarge)


async def test_a_killed_server_is_found_again() -> None:
    first = rpc_server({"run.GetRun": who})
    async with connected(first) as channel:
        await get_run(channel)
        await first.stop()
        with pytest.raises(Unavailable):
            await get_run(channel)
        second = rpc_server({"run.GetRun": who}, address=first.address)
        async with serving(second):

            async def found_again() -> bool:
                with suppress(Unavailable):
                    await get_run(channel)
                    return True
                return False

            await until(found_again)


async def test_a_drain_ends_what_is_in_progress_and_takes_nothing_new() -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Any, context: Any) -> Any:
        entered.set()
        await leave.wait()
        return run_service_pb2.GetRunResponse()

    server = rpc_server({"run.GetRun": slow})
    async with connected(server) as channel:
        assert await is_serving(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        running = asyncio.create_task(get_run(channel))
        await entered.wait()
        draining = asyncio.create_task(server.drain())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        watch.cancel()
        other = open_channel(server.address)
        with pytest.raises(Unavailable):
            await get_run(other)
        await other.close()
        assert not draining.done()
        leave.set()
        await running
        await asyncio.wait_for(draining, 30)


async def test_two_servers_cannot_share_a_port() -> None:
    async with serving(rpc_server({})) as first:
        with pytest.raises(OSError, match="cannot listen"):
            await rpc_server({}, address=first.address).start()


def test_only_loopback_is_served_without_tls() -> None:
    open_to_all = Address("0.0.0.0", 0)
    with pytest.raises(ValueError, match="needs TLS"):
        RpcServer(open_to_all, [], authenticator=TwoTokens(), telemetry=no_telemetry())
    RpcServer(open_to_all, [], authenticator=TwoTokens(), telemetry=no_telemetry(), plaintext=True)


async def test_a_peer_that_goes_in_the_middle_of_an_answer_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "services.core.rpc.broken_calls")
    big = run_service_pb2.WatchRunResponse(run=resources_pb2.Run(id="x" * 100_000))

    async def watch(request: Any, context: Any) -> AsyncIterator[run_service_pb2.WatchRunResponse]:
        while True:
            yield big

    def gone() -> int:
        return sum(record.name == "services.core.rpc.broken_calls" for record in caplog.records)

    async with serving(rpc_server({"run.WatchRun": watch})) as server, asyncio.timeout(120):
        while not gone():  # one of some dozens has something on its way to it just then
            channel = open_channel(server.address)  # a new one: much of what was not read slows an old one down
            stub = run_service_pb2_grpc.RunServiceStub(channel)
            request = run_service_pb2.WatchRunRequest(run_id="x")
            calls = [stub.WatchRun(request, metadata=call_metadata(ADMIN)) for _ in range(5)]
            await asyncio.gather(*(call.read() for call in calls))
            for call in calls:
                call.cancel()
            await channel.close()
    assert complaints(caplog) == []
