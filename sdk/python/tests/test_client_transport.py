"""The client over connections that break, and to servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificate import self_signed

from runr_workflows.client import ApiError, ApiUnreachable, AsyncClient, Client
from sdk.python.tests.scripted_api import RUN, SENT, Both, Scripted, Server, answer, problem


def test_a_connection_is_kept_and_a_closed_one_is_noticed(client: Both, server: Server) -> None:
    accepted = answer({"events": [SENT]})
    server.script = [accepted, accepted, answer({"events": [SENT]}, headers="Connection: close\r\n"), accepted]
    found = client.ask(*[lambda c: c.send("a")] * 4)
    assert found == [SENT] * 4
    assert server.connections == 2


def test_an_event_is_sent_again_with_the_same_id_until_it_is_accepted(client: Both, server: Server) -> None:
    busy = problem("503 Service Unavailable", "unavailable", "Retry-After: 0\r\n")
    again = {**SENT, "duplicate": True}
    server.script = [None, busy, problem("429 Too Many Requests"), answer({"events": [again]})]
    assert client.ask(lambda c: c.send("a")) == [SENT]  # the first, as far as the caller is concerned
    assert len({body["events"][0]["id"] for *_, body in server.requests}) == 1
    assert len(server.requests) == 4
    server.script = [None, answer({"events": [again]})]
    assert client.ask(lambda c: c.send("a", id="mine")) == [again]


def test_what_might_be_done_twice_is_not_tried_again(client: Both, server: Server) -> None:
    busy = problem("503 Service Unavailable", "unavailable", "Retry-After: 0\r\n")
    for ask in (
        lambda c: c.start("order"),
        lambda c: c.run("01R").replay(),
        lambda c: c.run("01R").retry(),
    ):
        server.script, before = [None], len(server.requests)
        (error,) = client.ask(ask)
        assert isinstance(error, ApiUnreachable)
        assert error.was_sent
        server.script = [busy]
        (refused,) = client.ask(ask)
        assert (refused.status, refused.code, refused.retry_after) == (503, "unavailable", 0)
        server.script = [problem("429 Too Many Requests"), answer(RUN, "201 Created")]
        (done,) = client.ask(ask)
        assert not isinstance(done, Exception)
        assert len(server.requests) - before == 4


@pytest.mark.parametrize(
    "scripted",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnull",
    ],
)
def test_what_is_not_the_api_is_told(client: Both, server: Server, scripted: bytes) -> None:
    server.script = [scripted]
    (error,) = client.ask(lambda c: c.event("01J"))
    assert isinstance(error, ApiError)
    assert error.code == "unknown"
    assert "not the API" in str(error)


@pytest.mark.parametrize("scripted", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", None])
def test_a_server_that_never_answers_is_unreachable(client: Both, server: Server, scripted: Scripted) -> None:
    end = None if scripted is None else scripted.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    server.script = [end] * 3
    (error,) = client.ask(lambda c: c.event("01J"), retries=2)
    assert isinstance(error, ApiUnreachable)
    assert error.was_sent
    assert len(server.requests) == 3


def test_nobody_there(client: Both, server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        (error,) = client.ask(lambda c: c.start("order"), url=url, retries=1)
    assert isinstance(error, ApiUnreachable)
    assert not error.was_sent


def test_no_answer_in_time(client: Both, server: Server) -> None:
    server.script = [b"HTTP/1.1 200 OK\r\n"]
    (error,) = client.ask(lambda c: c.event("01J"), timeout="100ms", retries=0)
    assert isinstance(error, ApiUnreachable)
    assert "no answer in time" in str(error)


def test_threads_share_a_client(server: Server) -> None:
    server.script = [answer({"data": {"n": 1}}, headers="X: y\r\n")] * 200
    found: list[Any] = []

    def ask() -> None:
        found.extend(client.event("01J")["data"] for _ in range(25))

    with Client(server.url, "token") as client:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [{"n": 1}] * 200
    assert server.connections <= 8


async def test_a_call_that_is_cancelled_takes_its_connection_with_it(server: Server) -> None:
    event = answer({"data": {"n": 1}})
    server.script = [event, event[:40], event]
    async with AsyncClient(server.url, "token") as client:
        assert (await client.event("01J"))["data"] == {"n": 1}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.event("01J"), 0.1)
        assert (await client.event("01J"))["data"] == {"n": 1}
    assert server.connections == 2


def test_answers_in_chunks_and_until_the_end(client: Both, server: Server) -> None:
    event = json.dumps({"data": {"n": 1}}).encode()
    chunked = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"3;x=y\r\n"
        + event[:3]
        + f"\r\n{len(event) - 3:x}\r\n".encode()
        + event[3:]
        + b"\r\n0\r\nTrailer: t\r\n\r\n"
    )
    to_the_end = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event
    server.script = [chunked, to_the_end, answer({"data": None})]
    found = client.ask(*[lambda c: c.event("01J")] * 3)
    assert found == [{"data": {"n": 1}}, {"data": {"n": 1}}, {"data": None}]
    assert server.connections == 2


def test_tls_is_verified(client: Both, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    context = self_signed(tmp_path)
    secure = Server(context)
    event = answer({"data": {"n": 1}})
    secure.script = [event, event]
    (error,) = client.ask(lambda c: c.event("01J"), url=secure.url, retries=0)
    assert isinstance(error, ApiUnreachable)
    assert "certificate verify failed" in str(error)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "server.pem"))
    assert client.ask(*[lambda c: c.event("01J")] * 2, url=secure.url) == [{"data": {"n": 1}}] * 2
    secure.close()
    assert secure.connections == 2
