"""What the client asks of the API, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runr_workflows import Context, Middleware, Step, Workflows
from runr_workflows.client import ApiError, AsyncClient, Client, ResultTimeout, RunFailed
from sdk.python.tests.scripted_api import RUN, SENT, Both, Server, answer, problem


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


def test_many_events_go_a_hundred_at_a_time(client: Both, server: Server) -> None:
    server.script = [answer({"events": [SENT] * 100}), answer({"events": [SENT] * 50})]
    (found,) = client.ask(lambda c: c.send_many([{"name": "a"} for _ in range(150)]))
    assert len(found) == 150
    assert [len(body["events"]) for *_, body in server.requests] == [100, 50]
    (refused,) = client.ask(lambda c: c.send_many([]))
    assert isinstance(refused, ValueError)


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
        ({"url": "ftp://x"}, r"url \(RUNR_API_URL\): 'ftp://x' is no address of the API"),
        ({"url": "http://[::1"}, r"url \(RUNR_API_URL\): 'http://\[::1' is no address of the API"),
        ({"url": "http://me:secret/@x"}, r"url \(RUNR_API_URL\): 'http://…@x' is no address of the API"),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
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
