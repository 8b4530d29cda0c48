"""Calls of the real HTTP client to a function of a test, and answers written byte by byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.core.domain.endpoint import EndpointPolicy
from services.core.domain.envelope import introspect_request
from services.core.domain.op import FunctionFault
from services.executor.function_client import HttpFunctionClient, RawAnswer, Target
from tests.support.fake_function import KEY, Answer, FakeFunction, Wire
from tests.support.raw_server import RawServer

ANYWHERE = EndpointPolicy(allow_private=True)


def make_client(**options: object) -> HttpFunctionClient:
    settings: dict[str, object] = {"policy": ANYWHERE, "connect_timeout_s": 2.0, **options}
    return HttpFunctionClient(unix_seconds=lambda: int(time.time()), version="9.9", **settings)  # type: ignore[arg-type]


@pytest.fixture
async def client() -> AsyncIterator[HttpFunctionClient]:
    """A client that may call functions of this machine."""
    async with make_client() as client:
        yield client


async def localhost(_: str) -> list[str]:
    """A name server that knows one answer."""
    return ["127.0.0.1"]


async def ask(client: HttpFunctionClient, function: FakeFunction, *, timeout_s: float = 5.0) -> RawAnswer:
    target = Target(function.url, (KEY,))
    return await client.call(target, "introspect", introspect_request(1), {}, timeout_s)


async def post(client: HttpFunctionClient, server: RawServer, text: str = "", *, timeout_s: float = 5.0) -> bytes:
    """The body of the answer; `text` is part of the request."""
    request = introspect_request(1)[:-1] + f',"text":"{text}"}}'
    return (await client.call(Target(server.url, (KEY,)), "introspect", request, {}, timeout_s)).body


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
