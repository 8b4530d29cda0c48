"""Functions that answer anything but the protocol, over real sockets: each a named fault, none read to its end."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from services.core.domain.op import FunctionFault
from services.executor.function_client import MAX_ANSWER_BYTES, HttpFunctionClient, RawAnswer
from tests.support.fake_function import FakeFunction, Reply, Wire
from tests.support.function_calls import ask, client, fault_of, head, silence, writing

__all__ = ["client"]

OK_BODY = b'{"runr_workflow":"v1","ops":[{"op":"run_completed"}]}'


class TestTime:
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
            head("Transfer-Encoding: chunked") + b"fff\r\nab",
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
