"""`wf.serve()` and its server over loopback."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import uvloop

from runr_workflows import AsyncStep, Context, Step, Workflows
from runr_workflows.protocol import MAX_BODY_BYTES
from runr_workflows.serving.server import Server, _Connection
from sdk.python.tests.engine import KEY, NOW, FakeEngine, envelope, execute_request, signature
from sdk.python.tests.loop_thread import LoopThread

BODY = envelope(execute_request("w"))


Running = Server | LoopThread


def make(kind: str, wf: Workflows) -> Running:
    """A server of this kind that is not started yet."""
    if kind == "threads":
        return Server(wf.handle_request, "127.0.0.1", 0)
    factory = uvloop.new_event_loop if kind == "uvloop" else asyncio.new_event_loop
    return LoopThread(wf.handle_request_async, "127.0.0.1", 0, factory)


@pytest.fixture(params=["threads", "asyncio", "uvloop"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(wf: Workflows, kind: str) -> Iterator[Running]:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        return step.run("a", lambda: "done")

    @wf.workflow("async")
    async def awaited(ctx: Context, step: AsyncStep) -> str:
        return await step.run("a", lambda: "done")

    with make(kind, wf) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    yield connection
    connection.close()


def exchange(server: Running, *parts: bytes) -> bytes:
    """Everything the server sends on one raw connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        for part in parts:
            raw.sendall(part)
        received = b""
        while data := raw.recv(65536):
            received += data
        return received


def request(headers: str, body: bytes = b"") -> bytes:
    """A raw request that closes its connection."""
    return f"POST /any HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n".encode() + body


def test_runs_complete_over_one_kept_connection(server: Running, client: http.client.HTTPConnection) -> None:
    def handle(body: bytes, headers: object) -> tuple[int, bytes]:
        client.request("POST", "/runr?x=1", body, {"Content-Type": "application/json"})
        response = client.getresponse()
        assert response.headers["Content-Type"] == "application/json"
        return response.status, response.read()

    client.connect()
    connected = client.sock
    for name in ("w", "async"):
        assert FakeEngine(handle).run(name).output == "done"
    assert client.sock is connected


def test_the_signature_is_taken_from_the_header(client: http.client.HTTPConnection) -> None:
    text = execute_request("w")
    body = json.dumps({"runr_workflow": "v1", "request": text})

    client.request("POST", "/", body, {"x-runr-SIGNATURE": signature(text)})
    assert client.getresponse().read().startswith(b'{"runr_workflow":"v1"')
    client.request("POST", "/", body, {"X-RunR-Signature": signature(text, key="other")})
    assert client.getresponse().status == 401


def test_the_id_of_a_request_comes_back_with_its_answer_whatever_that_is(
    server: Running, client: http.client.HTTPConnection
) -> None:
    unserved = envelope(execute_request("nobody"))
    for number, (body, status) in enumerate([(BODY, 200), (unserved, 400), (b"", 400), (BODY, 200)]):
        client.request("POST", "/", body, {"x-runr-REQUEST-id": f"a-{number}"})
        response = client.getresponse()
        response.read()
        assert (response.status, response.headers["X-RunR-Request-Id"]) == (status, f"a-{number}")

    refused = exchange(server, request(f"X-RunR-Request-Id: b\r\nContent-Length: {MAX_BODY_BYTES + 1}\r\n"))
    assert b"\r\nX-RunR-Request-Id: b\r\n" in refused


def test_only_what_can_be_an_id_comes_back(server: Running) -> None:
    for value in ("", "a b", "a,b", "é", "x" * 129, "a\r\nX-RunR-Request-Id: b"):
        raw = request(f"X-RunR-Request-Id: {value}\r\nContent-Length: {len(BODY)}\r\n", BODY)
        assert b"Request-Id" not in exchange(server, raw).partition(b"\r\n\r\n")[0]


def test_a_body_in_chunks_and_one_after_a_continue_are_read(server: Running) -> None:
    chunks = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in (BODY[:7], BODY[7:]))

    chunked = exchange(server, request("Transfer-Encoding: chunked\r\n", chunks + b"0\r\nTrailer: x\r\n\r\n"))
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(request(f"Expect: 100-continue\r\nContent-Length: {len(BODY)}\r\n"))
        assert raw.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        raw.sendall(BODY)
        continued = raw.recv(65536)

    assert chunked.startswith(b"HTTP/1.1 200 OK\r\n")
    assert continued.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_may_arrive_byte_by_byte_and_two_at_once(server: Running) -> None:
    one = f"POST / HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    last = request(f"Content-Length: {len(BODY)}\r\n", BODY)

    slow = exchange(server, *(last[index : index + 1] for index in range(len(last))))
    pipelined = exchange(server, one + one + last)

    assert slow.count(b"200 OK") == 1
    assert pipelined.count(b"200 OK") == 3


def test_many_requests_at_once_that_are_refused_at_once(server: Running) -> None:
    refused = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"

    received = exchange(server, refused * 2000 + request(f"Content-Length: {len(BODY)}\r\n", BODY))

    assert received.count(b"HTTP/1.1 400 ") == 2000
    assert received.count(b"200 OK") == 1


def test_half_a_request_behind_another_one_is_not_waited_for_once_the_client_has_ended(server: Running) -> None:
    one = f"POST / HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY

    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(one + b"POST")
        raw.shutdown(socket.SHUT_WR)
        received = b""
        while data := raw.recv(65536):
            received += data

    assert received.count(b"200 OK") == 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"garbage\r\n\r\n", 400),
        (b"POST / HTTP/2\r\n\r\n", 400),
        (request("Content-Length: -1\r\n"), 400),
        (request("Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        (request("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400),
        (request("Transfer-Encoding: gzip\r\n"), 400),
        (request("Transfer-Encoding: chunked\r\n", b"xyz\r\n"), 400),
        (request("Transfer-Encoding: chunked\r\n", b"2\r\nabc\r\n"), 400),
        (request("no colon\r\n"), 400),
        (request("Content-Length : 1\r\n"), 400),
        (request("X: " + "y" * 100_000 + "\r\n"), 431),
        (request(f"Content-Length: {MAX_BODY_BYTES + 1}\r\n"), 413),
        (request("Transfer-Encoding: chunked\r\n", b"%x\r\n" % (MAX_BODY_BYTES + 1)), 413),
        (request("Content-Length: 0\r\n"), 400),
        (b"GET / HTTP/1.1\r\n\r\n", 405),
    ],
)
def test_bad_http_is_answered_and_the_server_goes_on(server: Running, raw: bytes, status: int) -> None:
    received = exchange(server, raw)

    head, _, body = received.partition(b"\r\n\r\n")
    assert int(head.split(b" ")[1]) == status
    assert b"Connection: close" in head
    assert set(json.loads(body)) == {"error"}
    assert b"200 OK" in exchange(server, request(f"Content-Length: {len(BODY)}\r\n", BODY))


def test_a_client_that_leaves_in_the_middle_harms_nobody(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    for part in (b"", b"POST", request("Content-Length: 100\r\n", b"half")):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
            raw.sendall(part)

    assert b"200 OK" in exchange(server, request(f"Content-Length: {len(BODY)}\r\n", BODY))
    assert server.stop(grace=5)
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


def test_stopping_closes_idle_connections_and_finishes_what_is_in_flight(wf: Workflows, kind: str) -> None:
    begun, finish = threading.Event(), threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> bool:
        begun.set()
        return step.run("slow", finish.wait, 10)

    server = make(kind, wf)
    server.start()
    answers: list[bytes] = []
    idle = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    busy = threading.Thread(
        target=lambda: answers.append(exchange(server, request(f"Content-Length: {len(BODY)}\r\n", BODY)))
    )
    busy.start()
    assert begun.wait(5)
    stopped: list[bool] = []
    stopping = threading.Thread(target=lambda: stopped.append(server.stop(grace=10)))
    stopping.start()

    assert idle.recv(1) == b"", "the idle connection is closed at once"
    idle.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    finish.set()
    busy.join(5)
    stopping.join(5)

    assert b'"output":true' in answers[0]
    assert stopped == [True]


def test_a_connection_that_becomes_idle_while_the_server_stops_is_closed(
    wf: Workflows, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered, stopping = threading.Event(), threading.Event()
    look_for_the_next = _Connection._next

    def next_request(connection: _Connection) -> object:
        if not connection._idle:  # not the first
            answered.set()
            assert stopping.wait(30)
        return look_for_the_next(connection)

    monkeypatch.setattr(_Connection, "_next", next_request)
    server = Server(wf.handle_request, "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as raw:
        raw.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert answered.wait(30)
        stopped: list[bool] = []
        stopper = threading.Thread(target=lambda: stopped.append(server.stop(grace=30)))
        stopper.start()
        while not server._tcp.draining:
            stopper.join(0.01)
        stopping.set()
        stopper.join(60)

    assert stopped == [True]


def test_stopping_gives_up_after_the_grace_period(wf: Workflows, kind: str) -> None:
    begun, finish = threading.Event(), threading.Event()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> bool:
        begun.set()
        return step.run("slow", finish.wait, 10)

    server = make(kind, wf)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as raw:
        raw.sendall(request(f"Content-Length: {len(BODY)}\r\n", BODY))
        assert begun.wait(5)
        assert server.stop(grace=0.05) is False
        finish.set()
        if kind == "threads":
            assert raw.recv(100).startswith(b"HTTP/1.1 200")
        else:
            with suppress(ConnectionResetError):
                assert raw.recv(100) == b""


SERVING = f"""
import logging
from runr_workflows import Workflows
logging.basicConfig(level="INFO", format="%(message)s")
wf = Workflows(clock=lambda: {NOW})

@wf.workflow("w")
async def workflow(ctx, step):
    return await step.run("a", lambda: "done")

wf.serve("127.0.0.1", 0)
"""
SILENT = SERVING.replace("logging.basicConfig", "0 and logging.basicConfig").replace("127.0.0.1", "0.0.0.0")
SERVING_SYNC = SERVING.replace("async def", "def").replace("await ", "")
SERVING_ASYNC = SERVING.replace(
    'wf.serve("127.0.0.1", 0)',
    """
import asyncio, signal

async def main():
    serving = asyncio.ensure_future(wf.serve_async("127.0.0.1", 0))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    await serving

asyncio.run(main())
""",
)


@pytest.mark.parametrize("program", [SERVING, SERVING_SYNC, SERVING_ASYNC], ids=["async", "sync", "serve_async"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly_on_a_signal(number: int, program: str) -> None:
    env = {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "RUNR_WORKFLOW_SIGNING_KEY": KEY}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program], env=os.environ | env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving workflows w on http://127.0.0.1:")
        port = int(line.rpartition(":")[2])
        kept = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        kept.request("POST", "/", BODY)
        assert kept.getresponse().read().startswith(b'{"runr_workflow":"v1","ops"')
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stderr.read() == "stopping: finishing requests in flight, for at most 30 s\n"
        kept.close()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_serve_without_a_key_warns_and_tells_why_it_refuses() -> None:
    env = {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "RUNR_WORKFLOW_SIGNING_KEY": ""}
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SILENT], env=os.environ | env, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline().startswith("no signing key is set (RUNR_WORKFLOW_SIGNING_KEY)")
        line = process.stderr.readline()
        assert line.startswith("serving workflows w on all interfaces, http://127.0.0.1:")
        port = int(line.rpartition(":")[2])
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        client.request("POST", "/", BODY)
        assert client.getresponse().status == 500
        client.close()
        assert process.stderr.readline().startswith("a request was refused with 500: no signing key is configured")
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_taken_port_is_told_in_one_sentence(wf: Workflows) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=f"port {port} of 127.0.0.1 is taken"):
            wf.serve("127.0.0.1", port)
