"""The HTTP client over real sockets: what it sends, which connections it uses, what it cannot reach."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.core.domain.envelope import EventInfo, RunInfo, StepsFragment, execute_request, introspect_request
from services.core.domain.function_answer import parse_answer
from services.core.domain.op import FunctionFault, Op, RunCompleted, StepCompleted, StepOp
from services.executor.function_client import HttpFunctionClient, Target
from services.executor.introspect import introspect
from tests.support.certificate import self_signed
from tests.support.fake_function import (
    KEY,
    Answer,
    FakeFunction,
    Reply,
    Request,
    completed,
    failed,
    replaying,
    sleep,
)
from tests.support.function_calls import ask, client, head, make_client, silence, writing

__all__ = ["client"]

OK_BODY = b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}]}'


@dataclass(frozen=True)
class Limits:
    output_bytes: int = 1 << 20
    step_id_bytes: int = 200
    event_bytes: int = 256 << 10


async def invoke(client: HttpFunctionClient, function: FakeFunction, steps: StepsFragment) -> Op:
    """One round of a run of the workflow `orders`."""
    text = execute_request(
        workflow="orders",
        run=RunInfo(id="01J", attempt=0, started_at=0, source="api"),
        event=EventInfo(id="01K", name="runr/api.start", data="{}", ts=0),
        steps_fragment=steps.steps,
        order_fragment=steps.order,
        ts=1,
    )
    answer = await client.call(Target(function.url, (KEY,)), "execute", text, {}, 5.0)
    (op,) = parse_answer(answer.status, answer.body, limits=Limits())
    return op


class TestRequest:
    async def test_it_carries_every_header_of_the_protocol(self, client: HttpFunctionClient) -> None:
        own = {
            "X-RunR-Workflow": "orders",
            "X-RunR-Run-Id": "01J",
            "X-RunR-Attempt": "2",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        }
        async with FakeFunction() as function:
            await client.call(Target(function.url, (KEY,)), "introspect", introspect_request(1), own, 5.0)
            (received,) = function.requests
        assert received.method == "POST"
        assert received.path == "/workflows"
        for name, value in own.items():
            assert received.headers[name.lower()] == value
        assert received.headers["content-type"] == "application/json"
        assert received.headers["x-runr-protocol"] == "v1"
        assert received.headers["x-runr-request"] == "introspect"
        assert received.headers["user-agent"] == "RunR-Workflows/9.9"
        assert "cookie" not in received.headers
        assert "transfer-encoding" not in received.headers

    async def test_during_a_rotation_both_keys_sign(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(key="the-new-one") as new, FakeFunction(key="the-old-one") as old:
            for function in (new, old):
                target = Target(function.url, ("the-new-one", "the-old-one"))
                answer = await client.call(target, "introspect", introspect_request(1), {}, 5.0)
                assert answer.status == 200
                assert function.requests[0].headers["x-runr-signature"].count("v1=") == 2

    async def test_a_wrong_key_is_answered_401(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(key="another") as function:
            assert (await ask(client, function)).status == 401
            assert function.rejected == 1

    async def test_a_big_request_arrives_whole_and_signed(self, client: HttpFunctionClient) -> None:
        text = introspect_request(1)[:-1] + ',"pad":"' + "é" * 400_000 + '"}'
        async with FakeFunction() as function:
            answer = await client.call(Target(function.url, (KEY,)), "introspect", text, {}, 5.0)
            assert answer.status == 200
            assert function.requests[0].request["pad"] == "é" * 400_000

    async def test_the_path_and_query_are_sent_as_they_are_written(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(path="/a%2Fb/%C3%A9?x=%20&y=a+b") as function:
            await ask(client, function)
            assert function.requests[0].path == "/a%2Fb/%C3%A9?x=%20&y=a+b"

    async def test_keys_do_not_show(self) -> None:
        assert KEY not in repr(Target("http://127.0.0.1/", (KEY,)))


class TestConnections:
    async def test_an_answer_sent_twice_is_never_the_answer_of_the_next_request(
        self, client: HttpFunctionClient
    ) -> None:
        """Each request is answered with its own number; what comes late on a connection must reach nobody."""
        numbers = iter(range(100))
        taken, repeated = asyncio.Event(), asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    asked = await reader.readuntil(b"\r\n\r\n")
                    (length,) = re.findall(rb"(?i)content-length: (\d+)", asked)
                    await reader.readexactly(int(length))
                    body = str(next(numbers)).encode()
                    once = head(f"Content-Length: {len(body)}") + body
                    writer.write(once)
                    await writer.drain()
                    await taken.wait()  # by now the client has given the connection back
                    taken.clear()
                    writer.write(once)
                    repeated.set()
                    await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            target = Target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", (KEY,))
            bodies = []
            for _ in range(10):
                answer = await client.call(target, "introspect", introspect_request(1), {}, 5.0)
                bodies.append(answer.body)
                taken.set()
                await repeated.wait()  # the second copy is there before the next request
                repeated.clear()
        assert bodies == [str(number).encode() for number in range(10)]

    async def test_calls_at_once_do_not_wait_for_each_other(self, client: HttpFunctionClient) -> None:
        everyone = asyncio.Event()

        async def meet(_: Request) -> Answer:
            if len(server.requests) == 50:
                everyone.set()
            await everyone.wait()
            return Reply(body=OK_BODY)

        async with FakeFunction(introspect=meet) as server:
            answers = await asyncio.gather(*(ask(client, server) for _ in range(50)))
        assert [answer.body for answer in answers] == [OK_BODY] * 50

    async def test_a_connection_that_the_function_closed_meanwhile_is_not_used(
        self, client: HttpFunctionClient
    ) -> None:
        async with FakeFunction() as function:
            await ask(client, function)
            await function.stop()
            await function.start()
            assert (await ask(client, function)).status == 200

    async def test_a_request_is_never_sent_twice(self, client: HttpFunctionClient) -> None:
        """A connection that dies under a request: the server may have run, so the run's retry decides."""
        answers: list[Answer] = [Reply(body=OK_BODY), writing(), Reply(body=OK_BODY)]
        async with FakeFunction(introspect=lambda _: answers[len(server.requests) - 1]) as server:
            await ask(client, server)
            with pytest.raises(FunctionFault) as raised:
                await ask(client, server)
            assert raised.value.name == "FunctionUnreachable"
            assert len(server.requests) == 2
            assert (await ask(client, server)).status == 200

    async def test_cancelling_a_call_closes_its_connection(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(introspect=lambda _: writing(head("Content-Length: 9"), then=silence)) as function:
            call = asyncio.create_task(ask(client, function, timeout_s=60))
            await function.received(1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await function.until(lambda: function.hangups == 1)

    async def test_cookies_are_forgotten(self, client: HttpFunctionClient) -> None:
        with_cookie = Reply(body=OK_BODY, headers={"Set-Cookie": "a=b; Path=/"})
        async with FakeFunction(introspect=lambda _: with_cookie) as function:
            await ask(client, function)
            await ask(client, function)
            assert "cookie" not in function.requests[1].headers

    async def test_no_proxy_is_taken_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with make_client() as client, FakeFunction() as function:
            assert (await ask(client, function)).status == 200

    async def test_bytes_after_an_answer_do_not_become_the_next_one(self, client: HttpFunctionClient) -> None:
        poisoned = writing(head(f"Content-Length: {len(OK_BODY)}") + OK_BODY + head("Content-Length: 4") + b"evil")
        answers: list[Answer] = [poisoned, Reply(body=OK_BODY)]
        async with FakeFunction(introspect=lambda _: answers[len(server.requests) - 1]) as server:
            await ask(client, server)
            assert (await ask(client, server)).body == OK_BODY
            assert len(server.requests) == 2


class TestReach:
    async def test_nobody_listens(self, client: HttpFunctionClient) -> None:
        async with FakeFunction() as function:
            pass
        with pytest.raises(FunctionFault) as raised:
            await ask(client, function)
        assert raised.value.name == "FunctionUnreachable"

    async def test_a_name_that_does_not_exist(self) -> None:
        async def unknown(host: str) -> list[str]:
            raise OSError(f"no such name: {host}")

        async with make_client(lookup=unknown) as client:
            with pytest.raises(FunctionFault) as raised:
                await client.call(Target("http://nowhere.test/", (KEY,)), "introspect", "{}", {}, 5.0)
        assert raised.value.name == "FunctionUnreachable"
        assert "nowhere.test" in raised.value.message

    async def test_a_name_server_that_does_not_answer(self) -> None:
        async def never(host: str) -> list[str]:
            await asyncio.Event().wait()
            return []

        async with make_client(lookup=never, connect_timeout_s=0.1) as client:
            with pytest.raises(FunctionFault) as raised:
                await client.call(Target("http://slow.test/", (KEY,)), "introspect", "{}", {}, 5.0)
        assert raised.value.name == "FunctionUnreachable"

    async def test_tls_where_plain_text_is_spoken(self, client: HttpFunctionClient) -> None:
        async with FakeFunction() as function:
            url = function.url.replace("http://", "https://")
            with pytest.raises(FunctionFault) as raised:
                await client.call(Target(url, (KEY,)), "introspect", "{}", {}, 5.0)
        assert raised.value.name == "FunctionUnreachable"


class TestTls:
    async def test_a_certificate_is_verified_unless_told_otherwise(
        self, client: HttpFunctionClient, tmp_path: Path
    ) -> None:
        async with FakeFunction(tls=self_signed(tmp_path)) as function:
            unverified = Target(function.url, (KEY,), verify_tls=False)
            assert (await client.call(unverified, "introspect", introspect_request(1), {}, 5.0)).status == 200
            with pytest.raises(FunctionFault) as raised:
                await ask(client, function)
            assert len(function.requests) == 1
        assert raised.value.name == "FunctionUnreachable"
        assert "certificate" in raised.value.message


class TestRounds:
    async def test_a_run_from_its_first_step_to_its_end(self, client: HttpFunctionClient) -> None:
        script = replaying(completed("reserve", {"r": 1}), failed("charge"), sleep("cool-off", "10m"), output="done")
        seen: list[str] = []
        async with FakeFunction({"orders": script}) as function:
            steps = StepsFragment()
            while not isinstance(op := await invoke(client, function, steps), RunCompleted):
                assert isinstance(op, StepOp)
                seen.append(op.id)
                steps.completed(op.id, op.output if isinstance(op, StepCompleted) else "null")
            assert [len(each["steps"]) for each in function.executions("orders")] == [0, 1, 2, 3]
        assert seen == ["reserve", "charge", "cool-off"]
        assert op.output == '"done"'

    async def test_introspection(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(definitions=[{"name": "orders", "retries": 1}]) as function:
            target = Target(function.url, (KEY,))
            found = await introspect(client, target, unix_s=1, timeout_s=5.0, headers={"traceparent": "00-a-b-01"})
            assert function.requests[0].headers["traceparent"] == "00-a-b-01"
        assert found.workflows == [{"name": "orders", "retries": 1}]
        assert found.sdk.language == "python"
