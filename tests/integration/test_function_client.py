"""The HTTP client against functions that do everything but what they should, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.core.domain.endpoint import EndpointPolicy
from services.core.domain.envelope import introspect_request
from services.core.domain.op import FunctionFault
from services.executor.function_client import MAX_ANSWER_BYTES, HttpFunctionClient, RawAnswer, Target
from tests.support.fake_function import KEY, Answer, FakeFunction, Reply, Request, Wire

ANYWHERE = EndpointPolicy(allow_private=True)
OK_BODY = b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}]}'


@pytest.fixture
async def client() -> AsyncIterator[HttpFunctionClient]:
    async with make_client() as client:
        yield client


def make_client(**options: object) -> HttpFunctionClient:
    settings: dict[str, object] = {"policy": ANYWHERE, "connect_timeout_s": 2.0, **options}
    return HttpFunctionClient(unix_seconds=lambda: int(time.time()), version="9.9", **settings)  # type: ignore[arg-type]


async def ask(client: HttpFunctionClient, function: FakeFunction, *, timeout_s: float = 5.0) -> RawAnswer:
    target = Target(function.url, (KEY,))
    return await client.call(target, "introspect", introspect_request(1), {}, timeout_s)


async def fault_of(client: HttpFunctionClient, answer: Answer, *, timeout_s: float = 5.0) -> FunctionFault:
    """The fault that a call ends with when the function answers so."""
    async with FakeFunction(introspect=lambda _: answer) as function:
        with pytest.raises(FunctionFault) as raised:
            await ask(client, function, timeout_s=timeout_s)
        return raised.value


def writing(*chunks: bytes, then: Callable[[asyncio.StreamWriter], Awaitable[None]] | None = None) -> Wire:
    """Writes these bytes as they are, then closes, or does `then` first."""

    async def write(writer: asyncio.StreamWriter) -> None:
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
        if then is not None:
            await then(writer)

    return Wire(write)


async def silence(writer: asyncio.StreamWriter) -> None:
    """Say nothing more until the other side hangs up."""
    await asyncio.Event().wait()


def head(*lines: str) -> bytes:
    return "\r\n".join(("HTTP/1.1 200 OK", *lines)).encode() + b"\r\n\r\n"


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
    async def test_a_connection_is_used_again(self, client: HttpFunctionClient) -> None:
        async with FakeFunction() as function:
            for _ in range(5):
                await ask(client, function)
            assert function.connections == 1

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


class TestTimeAndReach:
    async def test_a_function_that_hangs_is_a_timeout_and_is_hung_up_on(self, client: HttpFunctionClient) -> None:
        async with FakeFunction(introspect=lambda _: Wire(silence)) as function:
            with pytest.raises(FunctionFault) as raised:
                await ask(client, function, timeout_s=0.2)
            await function.until(lambda: function.hangups == 1)
        assert raised.value.name == "FunctionTimeout"
        assert "0.2 s" in raised.value.message

    @pytest.mark.parametrize(
        "start",
        [
            b"HTTP/1.1 200 OK\r\nX-Slow: ",
            head("Content-Length: 100") + b"{",
            head("Transfer-Encoding: chunked") + b"5\r\nab",
        ],
        ids=["in-the-headers", "in-the-body", "in-a-chunk"],
    )
    async def test_one_that_dribbles_is_a_timeout(self, client: HttpFunctionClient, start: bytes) -> None:
        async def dribble(writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(b"a")
                await writer.drain()
                await asyncio.sleep(0.01)

        fault = await fault_of(client, writing(start, then=dribble), timeout_s=0.3)
        assert fault.name == "FunctionTimeout"

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


class TestBadAnswers:
    @pytest.mark.parametrize(
        "wire",
        [
            writing(),
            writing(b"HTTP/1.1 200 OK\r\nContent-Le"),
            writing(head("Content-Length: 100") + b'{"runr'),
            writing(head("Transfer-Encoding: chunked") + b"ff\r\nabc"),
        ],
        ids=["nothing", "half-a-head", "half-a-body", "half-a-chunk"],
    )
    async def test_one_that_breaks_off_is_unreachable(self, client: HttpFunctionClient, wire: Wire) -> None:
        assert (await fault_of(client, wire)).name == "FunctionUnreachable"

    @pytest.mark.parametrize(
        "wire",
        [
            writing(b"<html>hello</html>\r\n\r\n"),
            writing(b"SSH-2.0-OpenSSH_9.6\r\n"),
            writing(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
            writing(b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"a" * 100_000 + b"\r\n\r\n"),
            writing(b"HTTP/1.1 200 OK\r\n", *(b"X-%d: a\r\n" % number for number in range(5_000)), b"\r\n"),
            writing(head("Content-Length: 2", "Content-Length: 3") + b"{}"),
            writing(head("Content-Length: -1") + b"{}"),
            writing(head("Content-Length: 2") + b"{}" + b"x" * 50),
            writing(head("Transfer-Encoding: chunked") + b"zz\r\nabc\r\n0\r\n\r\n"),
        ],
        ids=[
            "html",
            "ssh",
            "tls",
            "a-long-header",
            "many-headers",
            "two-lengths",
            "a-negative-length",
            "more-than-announced",
            "a-chunk-without-a-size",
        ],
    )
    async def test_one_that_is_not_http_is_a_protocol_error(self, client: HttpFunctionClient, wire: Wire) -> None:
        assert (await fault_of(client, wire)).name == "ProtocolError"

    async def test_garbage_comes_back_as_it_is(self, client: HttpFunctionClient) -> None:
        for body in (b"", b"\xff\x00garbage", b"<html>"):
            async with FakeFunction(introspect=lambda _, body=body: Reply(body=body)) as function:  # type: ignore[misc]
                assert await ask(client, function) == RawAnswer(200, body)

    @pytest.mark.parametrize("status", [301, 302, 307, 308])
    async def test_a_redirect_is_not_followed(self, client: HttpFunctionClient, status: int) -> None:
        async with FakeFunction() as elsewhere:
            redirect = Reply(status, b"moved", {"Location": elsewhere.url})
            async with FakeFunction(introspect=lambda _: redirect) as function:
                assert await ask(client, function) == RawAnswer(status, b"moved")
                assert len(function.requests) == 1
            assert elsewhere.connections == 0


class TestSize:
    async def test_the_limit_itself_is_allowed(self, client: HttpFunctionClient) -> None:
        body = b"x" * MAX_ANSWER_BYTES
        async with FakeFunction(introspect=lambda _: Reply(body=body)) as function:
            assert len((await ask(client, function)).body) == MAX_ANSWER_BYTES

    async def test_an_announced_100_mb_is_not_read(self, client: HttpFunctionClient) -> None:
        fault = await fault_of(client, writing(head("Content-Length: 100000000"), then=silence))
        assert fault.name == "AnswerTooLarge"
        assert "100000000" in fault.message

    @pytest.mark.parametrize("chunked", [True, False])
    async def test_an_endless_answer_is_hung_up_on(self, client: HttpFunctionClient, chunked: bool) -> None:
        sent = 0
        block = b"x" * 65_536

        async def pour(writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            while True:
                writer.write(b"10000\r\n" + block + b"\r\n" if chunked else block)
                await writer.drain()
                sent += len(block)

        start = head("Transfer-Encoding: chunked") if chunked else head()
        async with FakeFunction(introspect=lambda _: writing(start, then=pour)) as function:
            with pytest.raises(FunctionFault) as raised:
                await ask(client, function, timeout_s=20)
            await function.until(lambda: function.hangups == 1)
        assert raised.value.name == "AnswerTooLarge"
        assert MAX_ANSWER_BYTES <= sent + 65_536 < MAX_ANSWER_BYTES + 16 * 1024 * 1024  # what sockets buffer

    async def test_a_gzip_bomb_is_not_unpacked(self, client: HttpFunctionClient) -> None:
        bomb = gzip.compress(bytes(100_000_000), 9)
        fault = await fault_of(client, Reply(body=bomb, headers={"Content-Encoding": "gzip"}))
        assert fault.name == "AnswerTooLarge"

    async def test_gzip_that_was_not_asked_for_is_read(self, client: HttpFunctionClient) -> None:
        packed = Reply(body=gzip.compress(OK_BODY), headers={"Content-Encoding": "GZIP"})
        async with FakeFunction(introspect=lambda _: packed) as function:
            assert (await ask(client, function)).body == OK_BODY

    @pytest.mark.parametrize(
        ("body", "encoding"),
        [(OK_BODY, "gzip"), (gzip.compress(OK_BODY)[:-9], "gzip"), (OK_BODY, "br")],
        ids=["not-gzip", "half-gzip", "another-encoding"],
    )
    async def test_an_encoding_that_cannot_be_read(
        self, client: HttpFunctionClient, body: bytes, encoding: str
    ) -> None:
        fault = await fault_of(client, Reply(body=body, headers={"Content-Encoding": encoding}))
        assert fault.name == "ProtocolError"

    async def test_a_huge_failure_is_still_a_failure(self, client: HttpFunctionClient) -> None:
        failure = Reply(500, b"it broke " * 2_000_000)
        async with FakeFunction(introspect=lambda _: failure) as function:
            answer = await ask(client, function)
        assert answer.status == 500
        assert answer.body.startswith(b"it broke")
        assert len(answer.body) <= 65_536
