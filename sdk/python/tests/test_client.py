"""The client against servers that misbehave. Against the real gateway: `tests/e2e/test_client.py`."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificate import self_signed

from runr_workflows import Context, Middleware, Step, Workflows
from runr_workflows.client import ApiError, ApiUnreachable, AsyncClient, Client, ResultTimeout, RunFailed, exchange

Scripted = bytes | None
"""What is answered to a request; None: the connection is closed without an answer."""


def answer(content: Any, status: str = "200 OK", headers: str = "") -> bytes:
    body = json.dumps(content).encode()
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def problem(status: str, code: str = "conflict", headers: str = "") -> bytes:
    errors = [{"path": "events[0].name", "message": "bad"}, {"path": "", "message": "worse"}]
    return answer(
        {"type": f"https://x/problems/{code}", "title": "t", "detail": "told", "errors": errors, "trace_id": "abc"},
        status,
        headers,
    )


SENT = {"id": "01J", "name": "a", "duplicate": False, "runs": [], "resumed": 0, "cancelled": 0}
RUN = {"id": "01R", "status": "queued"}


class Server:
    """Answers by script, one connection after another, and keeps the requests."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.script: list[Scripted] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._tls = tls
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
            self._open.append(connection)
        stream = connection.makefile("rb")
        try:
            while first := stream.readline():
                method, target, _ = first.decode().split(" ")
                headers: dict[str, str] = {}
                while (line := stream.readline().decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    headers[name.lower()] = value
                body = stream.read(int(headers.get("content-length", 0)))
                self.requests.append((method, target, headers, json.loads(body) if body else None))
                scripted = self.script.pop(0)
                if scripted is None:
                    return
                connection.sendall(scripted)
                if b"connection: close" in scripted.lower():
                    return
        except OSError:
            return
        finally:
            stream.close()
            connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_FIRST_PAUSE_S", 0.001)


Ask = Callable[[Any], Any]


class Both:
    """Does the same with the blocking and the async client."""

    def __init__(self, kind: type[Any], server: Server) -> None:
        self.kind = kind
        self._url = server.url

    def ask(self, *asks: Ask, **options: Any) -> list[Any]:
        """What each of the calls answers, or the error that it raises."""
        options = {"url": self._url, "token": "secret", **options}
        return asyncio.run(self._asked(asks, options)) if self.kind is AsyncClient else self._asked_sync(asks, options)

    async def _asked(self, asks: Any, options: Any) -> list[Any]:
        found: list[Any] = []
        async with AsyncClient(**options) as client:
            for ask in asks:
                try:
                    made = ask(client)
                    if inspect.isasyncgen(made):
                        found.append([each async for each in made])
                    else:
                        found.append(await made)
                except Exception as error:
                    found.append(error)
        return found

    def _asked_sync(self, asks: Any, options: Any) -> list[Any]:
        found: list[Any] = []
        with Client(**options) as client:
            for ask in asks:
                try:
                    made = ask(client)
                    found.append(list(made) if inspect.isgenerator(made) else made)
                except Exception as error:
                    found.append(error)
        return found


@pytest.fixture(params=[Client, AsyncClient], ids=["blocking", "async"])
def client(request: pytest.FixtureRequest, server: Server) -> Both:
    return Both(request.param, server)


def test_a_request_says_who_asks_and_what(client: Both, server: Server) -> None:
    server.script = [answer({"ids": ["01J"], "events": [SENT]})]
    assert client.ask(lambda c: c.send("a", {"n": 1}, ts=5, test=True), tenant="mine") == [SENT]
    ((method, target, headers, body),) = server.requests
    assert (method, target) == ("POST", "/api/events?test=1")
    assert headers["authorization"] == "Bearer secret"
    assert headers["x-tenant-id"] == "mine"
    assert headers["host"] == server.url.removeprefix("http://")
    (event,) = body["events"]
    assert {**event, "id": ""} == {"name": "a", "data": {"n": 1}, "ts": 5, "id": ""}
    assert len(event["id"]) == 36


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


def test_many_events_go_a_hundred_at_a_time(client: Both, server: Server) -> None:
    server.script = [answer({"events": [SENT] * 100}), answer({"events": [SENT] * 50})]
    (found,) = client.ask(lambda c: c.send_many([{"name": "a"} for _ in range(150)]))
    assert len(found) == 150
    assert [len(body["events"]) for *_, body in server.requests] == [100, 50]
    (refused,) = client.ask(lambda c: c.send_many([]))
    assert isinstance(refused, ValueError)


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


def test_a_start_with_a_key_is_tried_again(client: Both, server: Server) -> None:
    wf = Workflows()

    @wf.workflow("order")
    def order(ctx: Context, step: Step) -> None: ...

    @wf.workflow("keyed", idempotency="event.data.id")
    def keyed(ctx: Context, step: Step) -> None: ...

    server.script = [None, answer(RUN)] * 3
    given, made, own = client.ask(
        lambda c: c.start("order", key="k"), lambda c: c.start(order), lambda c: c.start(keyed, {"id": 1})
    )
    assert [run.is_new for run in (given, made, own)] == [False, True, False]
    keys = [body.get("idempotency_key") for *_, body in server.requests]
    assert keys[:2] == ["k", "k"]
    assert keys[2] == keys[3]
    assert len(keys[2]) == 36
    assert keys[4:] == [None, None]


def test_a_cancel_that_is_tried_again_finds_its_own_work_done(client: Both, server: Server) -> None:
    cancelled = {**RUN, "status": "cancelled"}
    server.script = [None, problem("409 Conflict"), answer(cancelled)]
    assert client.ask(lambda c: c.run("01R").cancel()) == [cancelled]
    server.script = [problem("409 Conflict")]
    (error,) = client.ask(lambda c: c.run("01R").cancel(children="keep"))
    assert error.status == 409
    assert server.requests[-1][3] == {"children": "keep"}
    server.script = [None, problem("409 Conflict"), answer({**RUN, "status": "completed"})]
    (error,) = client.ask(lambda c: c.run("01R").cancel())
    assert error.status == 409


def test_errors_say_what_is_wrong_and_where(client: Both, server: Server) -> None:
    server.script = [problem("422 Unprocessable Content", "invalid-input")]
    (error,) = client.ask(lambda c: c.send("bad name"))
    assert isinstance(error, ApiError)
    assert (error.status, error.code, error.message, error.field) == (422, "invalid-input", "told", "events[0].name")
    assert error.errors == (("events[0].name", "bad"), ("", "worse"))
    assert (error.trace_id, str(error)) == ("abc", "422 invalid-input: told")


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


def test_lists_go_from_page_to_page(client: Both, server: Server) -> None:
    server.script = [answer({"data": [1, 2], "next_cursor": "c&1"}), answer({"data": [3], "next_cursor": None})]
    since = "2026-10-10T10:00:00+02:00"
    (found,) = client.ask(lambda c: c.runs(workflow="w", status=["failed", "cancelled"], since=since, page_size=2))
    assert found == [1, 2, 3]
    first, second = (target for _, target, *_ in server.requests)
    assert first == (
        "/api/projects/default/runs?workflow=w&status=failed&status=cancelled&from=2026-10-10T08%3A00%3A00Z&limit=2"
    )
    assert second == f"{first}&cursor=c%261"
    server.script = [answer({"data": [], "next_cursor": None})]
    assert client.ask(lambda c: c.events(name="order.", source="api"), project="shop") == [[]]
    assert server.requests[-1][1] == "/api/events?name=order.&source=api"


def test_a_result_is_waited_for(client: Both, server: Server) -> None:
    active = {"id": "01R", "status": "running", "ended": False, "output": None, "error": None}
    done = {**active, "status": "completed", "ended": True, "output": {"n": 1}}
    error = {"name": "E", "message": "no", "stack": None}
    failed = {**active, "status": "failed", "ended": True, "error": error}
    server.script = [
        answer(active, "202 Accepted"),
        answer(done),
        answer(failed),
        *[answer(active, "202 Accepted")] * 100,
    ]
    completed, broken, late = client.ask(
        lambda c: c.run("01R").result(), lambda c: c.run("01R").result(), lambda c: c.run("01R").result("250ms")
    )
    assert completed == {"n": 1}
    assert isinstance(broken, RunFailed)
    assert (broken.status, broken.error, str(broken)) == ("failed", error, "run 01R failed: E: no")
    assert isinstance(late, ResultTimeout)
    assert isinstance(late, TimeoutError)
    assert str(late) == "run 01R has not ended within 0.25 s"
    targets = [target for _, target, *_ in server.requests]
    assert targets[0] == "/api/runs/01R/result?wait=30"
    assert targets[3] == "/api/runs/01R/result?wait=1"
    assert len(targets) < 10  # it pauses between requests that the engine answers at once


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


def test_ids_are_one_segment_of_the_path(client: Both, server: Server) -> None:
    server.script = [problem("404 Not Found", "not-found")] * 2
    client.ask(lambda c: c.run("../x?y").get(), lambda c: c.start("a/b"), project="p/q")
    assert [target for _, target, *_ in server.requests] == [
        "/api/runs/..%2Fx%3Fy",
        "/api/projects/p%2Fq/workflows/a%2Fb/runs",
    ]


class Wraps(Middleware):
    def encode(self, value: Any, where: str) -> Any:
        return {"wrapped": value, "where": where}

    def decode(self, value: Any, where: str) -> Any:
        assert value["where"] == where
        return value["wrapped"]


class WrapsAsync(Middleware):
    async def encode(self, value: Any, where: str) -> Any:
        await asyncio.sleep(0)
        return Wraps().encode(value, where)

    async def decode(self, value: Any, where: str) -> Any:
        return Wraps().decode(value, where)


def test_what_is_sent_is_encoded_and_what_is_read_decoded(client: Both, server: Server) -> None:
    wraps = Wraps()
    empty: dict[str, Any] = {"error": None, "attempts": [], "input": None}
    steps = [
        {
            **empty,
            "kind": "run",
            "status": "completed",
            "output": wraps.encode(1, "step"),
            "input": wraps.encode([1], "step"),
        },
        {**empty, "kind": "sleep", "status": "completed", "output": None, "input": {"duration_ms": 1}},
        {
            **empty,
            "kind": "invoke",
            "status": "completed",
            "output": wraps.encode(2, "run"),
            "input": {"data": wraps.encode({}, "event")},
        },
        {
            **empty,
            "kind": "wait_for_event",
            "status": "completed",
            "output": {"id": "e", "data": wraps.encode({"n": 3}, "event")},
        },
        {**empty, "kind": "run", "status": "failed", "output": None},
    ]
    run = {**RUN, "status": "completed", "output": wraps.encode(9, "run"), "steps": steps}
    run["event"] = {"id": "e", "data": wraps.encode({"n": 0}, "event")}
    server.script = [answer(RUN, "201 Created"), answer(run), answer({"events": [SENT]})]
    middleware = [WrapsAsync() if client.kind is AsyncClient else wraps]
    _, found, _ = client.ask(
        lambda c: c.start("order", {"n": 0}), lambda c: c.run("01R").get(), lambda c: c.send("a"), middleware=middleware
    )
    assert server.requests[0][3] == {"data": wraps.encode({"n": 0}, "event")}
    assert server.requests[2][3]["events"][0]["data"] == wraps.encode({}, "event")
    assert (found["output"], found["event"]["data"]) == (9, {"n": 0})
    assert [step["output"] for step in found["steps"]] == [1, None, 2, {"id": "e", "data": {"n": 3}}, None]
    assert [step["input"] for step in found["steps"]][:3] == [[1], {"duration_ms": 1}, {"data": {}}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": ""}, "no address of the API"),
        ({"url": "ftp://x"}, "is no address of the API"),
        ({"url": "http://x:99999"}, "is no address of the API"),
        ({"token": ""}, "no token for the API"),
        ({"token": "a b"}, "blanks or characters that no header holds"),
        ({"retries": -1}, "retries: an integer from 0"),
        ({"middleware": [WrapsAsync()]}, "is async: use AsyncClient"),
    ],
)
def test_settings_that_are_wrong_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Client(**{"url": "http://x", "token": "t", **options})


def test_settings_come_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNR_API_URL", f"{server.url}/below/api/")
    monkeypatch.setenv("RUNR_TOKEN", "from-there")
    server.script = [answer({"data": None})]
    with Client() as client:
        client.event("01J")
    ((_, target, headers, _),) = server.requests
    assert (target, headers["authorization"]) == ("/below/api/events/01J", "Bearer from-there")
