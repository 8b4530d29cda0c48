"""What a function sees of the engine, request by request, over the whole stack: the exchange of the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.fake_function import FakeFunction, Op, Received, Reply, Script, completed, failed, replaying
from tests.support.rest import Rest, step_of
from tests.support.transports import only_over

pytestmark = only_over("http", because="the requests and answers themselves are looked at")

INVOKE: Op = {"op": "invoke", "id": "call", "workflow": "child", "data": {"n": 1}}
DONE: Op = {"op": "run_completed", "output": {"status": "done"}}


@asynccontextmanager
async def function(rest: Rest, scripts: dict[str, Script], *definitions: dict[str, Any]) -> AsyncIterator[FakeFunction]:
    """The project's function, which answers by these scripts."""
    app = f"/projects/{rest.project}/workflows/app"
    key = (await rest.ok("GET", f"{app}/signing-key"))["signing_key"]
    async with FakeFunction(scripts, key=key, definitions=definitions or None) as made:
        await rest.ok("PATCH", app, {"endpoint_url": made.url})
        yield made


def executions(function: FakeFunction, run: str) -> list[Received]:
    """The execute requests of one run."""
    return [each for each in function.requests if each.request.get("run", {}).get("id") == run]


async def test_the_exchange_that_the_protocol_shows(rest: Rest) -> None:
    ops: list[Op] = [
        {"op": "step_completed", "id": "reserve", "name": "reserve", "output": {"r": 1}, "duration_ms": 12},
        {"op": "sleep", "id": "cool-off", "name": "cool-off", "duration": "200ms"},
        {
            "op": "wait_for_event",
            "id": "shipped",
            "name": "shipped",
            "event": "order.shipped",
            "match": "data.order_id",
            "timeout": "3d",
        },
        {"op": "run_completed", "output": {"status": "done"}},
    ]
    scripts: dict[str, Script] = {"process-order": lambda request: ops[len(request["steps"])]}
    definition = {"name": "process-order", "triggers": [{"event": "order.created"}]}
    async with function(rest, scripts, definition) as served:
        sent = await rest.send("order.created", {"order_id": "o-1"}, ts=1_760_000_000_000)
        (run,) = sent["runs"]
        await rest.becomes(run, "waiting")
        shipped = await rest.send("order.shipped", {"order_id": "o-1"}, ts=5)
        assert await rest.completed(run) == {"status": "done"}
        found = await rest.run(run)
        received = executions(served, run)
    event = {"id": shipped["id"], "name": "order.shipped", "data": {"order_id": "o-1"}, "ts": 5}
    steps = {
        "reserve": {"status": "completed", "output": {"r": 1}},
        "cool-off": {"status": "completed", "output": None},
        "shipped": {"status": "completed", "output": event},
    }
    order = list(steps)
    assert [each.request["steps"] for each in received] == [
        {id: steps[id] for id in order[:number]} for number in range(4)
    ]
    assert [each.request["step_order"] for each in received] == [order[:number] for number in range(4)]
    for each in received:
        request = each.request
        assert {key: request[key] for key in ("type", "protocol", "workflow")} == {
            "type": "execute",
            "protocol": "v1",
            "workflow": "process-order",
        }
        trigger = {"id": sent["id"], "name": "order.created", "data": {"order_id": "o-1"}, "ts": 1_760_000_000_000}
        assert request["event"] == trigger
        own = {"attempt": 0, "source": "event", "replay": False, "parent_run_id": None}
        assert {key: request["run"][key] for key in own} == own
        assert request["run"]["started_at"] == found["started_at"]
        assert (each.headers["x-runr-workflow"], each.headers["x-runr-run-id"]) == ("process-order", run)


async def test_a_step_that_is_being_retried_is_absent_and_counted(rest: Rest) -> None:
    """Failed for good it is there, with its error."""
    flaky = failed("charge", "card declined", retry_after="100ms", max_attempts=3)
    scripts: dict[str, Script] = {"work": replaying(completed("reserve", 1), flaky, output="over")}
    async with function(rest, scripts) as served:
        run = await rest.start("work")
        assert await rest.completed(run) == "over"
        requests = [each.request for each in executions(served, run)]
        attempts = [each.headers["x-runr-attempt"] for each in executions(served, run)]
    error = {"name": "Error", "message": "card declined"}
    assert [request["run"]["attempt"] for request in requests] == [0, 0, 1, 2, 0]
    assert attempts == ["0", "0", "1", "2", "0"]
    assert ["charge" in request["steps"] for request in requests] == [False] * 4 + [True]
    assert requests[-1]["steps"]["charge"] == {"status": "failed", "error": error}


async def test_failed_attempts_of_the_function_are_counted_until_a_step_is_stored(rest: Rest) -> None:
    broken = {"op": "run_failed", "error": "not yet", "retry_after": "100ms"}
    answers: list[Any] = [broken, Reply(401), completed("a"), broken, completed("b"), DONE]
    async with function(rest, {"work": lambda _: answers.pop(0)}) as served:
        run = await rest.start("work")
        await rest.completed(run)
        attempts = [each.request["run"]["attempt"] for each in executions(served, run)]
        found = await rest.run(run)
    assert attempts == [0, 1, 2, 0, 1, 0]
    assert [each["error"]["name"] for each in found["attempts"]] == ["Error", "SignatureRejected", "Error"]
    assert [each["error"]["message"] for each in found["attempts"]][::2] == ["not yet", "not yet"]


async def test_the_trigger_event_tells_how_a_run_was_started(rest: Rest) -> None:
    scripts: dict[str, Script] = {"work": replaying(INVOKE), "child": replaying()}
    async with function(rest, scripts, {"name": "work", "triggers": [{"event": "begun"}]}, {"name": "child"}) as served:
        by_api = await rest.start("work", {"n": 7})
        (by_event,) = (await rest.ok("POST", "/events?test=1", {"name": "begun"}))["events"][0]["runs"]
        for run in (by_api, by_event):
            await rest.completed(run)
        again = (await rest.ok("POST", f"/runs/{by_api}/replay", {}))["id"]
        await rest.completed(again)
        children = {run: (await rest.run(run))["children"][0]["id"] for run in (by_api, by_event)}
        seen = {run: executions(served, run)[0].request for run in (by_api, by_event, again, *children.values())}
        shown = {run: await rest.run(run) for run in seen}
    told = {run: (request["event"]["name"], request["run"]["source"]) for run, request in seen.items()}
    assert told == {
        by_api: ("runr/api.start", "api"),
        by_event: ("begun", "event"),
        again: ("runr/api.start", "replay"),
        children[by_api]: ("runr/invoke", "invoke"),
        children[by_event]: ("runr/invoke", "invoke"),
    }
    assert seen[by_api]["event"]["data"] == {"n": 7}
    child = seen[children[by_api]]
    assert (child["event"]["data"], child["run"]["parent_run_id"]) == ({"n": 1}, by_api)
    assert [seen[run]["run"]["replay"] for run in (by_api, again)] == [False, True]
    # A test event makes test runs, down to their children.
    marked = {by_event, children[by_event]}
    assert {run for run, request in seen.items() if request["run"].get("test")} == marked
    assert {run for run, found in shown.items() if found["test"]} == marked


@pytest.mark.parametrize("as_text", [True, False])
async def test_an_answer_that_a_runtime_did_not_unwrap(rest: Rest, as_text: bool) -> None:
    body = '{"runr_workflow": "v1", "ops": [{"op": "run_completed", "output": {}}]}'
    shown = '"' + body.replace('"', '\\"') + '"' if as_text else body
    wrapped = f'{{"statusCode": 200, "headers": {{"Content-Type": "application/json"}}, "body": {shown}}}'
    async with function(rest, {"work": lambda _: Reply(200, wrapped.encode())}):
        assert await rest.completed(await rest.start("work")) == {}


async def test_an_event_that_was_there_before_the_wait_is_not_waited_for(rest: Rest) -> None:
    wait: Op = {"op": "wait_for_event", "id": "w", "event": "paid", "timeout": "1h"}
    async with function(rest, {"work": replaying(wait, output="over")}):
        assert (await rest.send("paid"))["resumed"] == 0
        run = await rest.start("work")
        waiting = await rest.becomes(run, "waiting")
        assert step_of(waiting, "w")["status"] == "waiting"
        assert (await rest.send("paid"))["resumed"] == 1
        assert await rest.completed(run) == "over"
