"""The limits of engine section 8, each set by its variable: what is at the limit is taken, one more is refused with the
limit and the size, and nothing of it is stored.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.core.runtime.parse import Address
from services.embedded.stack import EmbeddedStack
from tests.support.fake_function import FakeFunction, Op, Script, completed, replaying, send_event, wait_for_event
from tests.support.fake_worker import Refused, fake_worker
from tests.support.postgres import run_apart
from tests.support.rest import Json, Rest, step_of
from tests.support.stack import Servers, Stack
from tests.support.transports import Transport, only_over
from tests.support.worker import Door

EVENT, EVENTS, START, OUTPUT, STATE, STEPS = 1_000, 3, 500, 2_000, 5_000, 4
KEY, WORKFLOWS, BODY, EVENTS_BODY, WAIT_S, SCANNED = 20, 2, 8_000, 9_000, 1, 2
STEP_ID, STORED_ID = 150, 255

SETTINGS = {
    "WORKFLOWS_MAX_EVENT_SIZE": EVENT,
    "WORKFLOWS_MAX_EVENTS_PER_REQUEST": EVENTS,
    "WORKFLOWS_MAX_START_SIZE": START,
    "WORKFLOWS_MAX_OUTPUT_SIZE": OUTPUT,
    "WORKFLOWS_MAX_STATE_SIZE": STATE,
    "WORKFLOWS_MAX_STEPS": STEPS,
    "WORKFLOWS_MAX_STEP_ID_BYTES": STEP_ID,
    "WORKFLOWS_MAX_IDEMPOTENCY_KEY_BYTES": KEY,
    "WORKFLOWS_MAX_WORKFLOWS": WORKFLOWS,
    "WORKFLOWS_MAX_BODY_SIZE": BODY,
    "WORKFLOWS_MAX_EVENTS_BODY_SIZE": EVENTS_BODY,
    "WORKFLOWS_MAX_SCANNED_WAITS": SCANNED,
    "WORKFLOWS_WAIT_TIMEOUT": f"{WAIT_S}s",
}
API = only_over("http", because="the API refuses, before any code is reached")
AT_AND_OVER = pytest.mark.parametrize("over", [0, 1], ids=["at the limit", "one over"])


@pytest.fixture(scope="module")
def narrow(postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack) -> Iterator[Stack]:
    """A stack with small limits."""
    settings = {name: str(value) for name, value in SETTINGS.items()}
    made = Stack(Servers(postgres_stack, nats_stack), settings=settings)
    run_apart(made.__aenter__())
    try:
        yield made
        assert made.faults() == []
    finally:
        run_apart(made.close())


@pytest.fixture
async def rest(narrow: Stack, transport: Transport) -> AsyncIterator[Rest]:
    """A client in a new tenant."""
    async with narrow.tenant(transport) as client:
        yield client


@asynccontextmanager
async def scripted(rest: Rest, **workflows: Script) -> AsyncIterator[None]:
    """Code that behaves by these scripts, known to the project. No workflow is tried twice."""
    if rest.transport == "http":
        async with function(rest, **workflows):
            yield
        return
    definitions = [{"name": name, "retries": 0} for name in workflows]
    async with fake_worker(await door(rest), workflows, tenant=rest.tenant, definitions=definitions):
        yield


@asynccontextmanager
async def function(rest: Rest, **workflows: Script) -> AsyncIterator[FakeFunction]:
    """The same as a function that is called over HTTP."""
    app = f"/projects/{rest.project}/workflows/app"
    key = (await rest.ok("GET", f"{app}/signing-key"))["signing_key"]
    definitions = [{"name": name, "retries": 0} for name in workflows]
    async with FakeFunction(workflows, key=key, definitions=definitions) as made:
        await rest.ok("PATCH", app, {"endpoint_url": made.url})
        yield made


async def door(rest: Rest) -> Door:
    """Where workers of the project connect."""
    key = (await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key"))["signing_key"]
    host, _, port = rest.worker_urls[0].rpartition(":")
    return Door(Address(host, int(port)), key)


async def ended(rest: Rest, *ops: Op, output: Any = None) -> Json:
    """A run that answered these ops in turn and then this output, once it has ended."""
    async with scripted(rest, work=replaying(*ops, output=output)):
        return await rest.end(await rest.start("work"))


def text(size: int) -> str:
    """A string of which the JSON has so many bytes."""
    return "x" * (size - 2)


def data(size: int) -> Json:
    """An object of which the compact JSON has so many bytes; not all of them are ASCII."""
    return {"é": text(size - 7)}


def plain(size: int) -> Json:
    """The same in ASCII, for what counts as it was written: the fake function escapes everything else."""
    return {"x": text(size - 6)}


def refused(reply: Any, limit: int, size: int) -> None:
    """The refusal is a 413 or 422 that tells limit and size."""
    assert reply.status in (413, 422), reply.body
    told = json.dumps(reply.problem(reply.status))
    assert str(limit) in told
    assert str(size) in told


@API
@AT_AND_OVER
async def test_name_and_data_of_an_event(rest: Rest, over: int) -> None:
    reply = await rest.call("POST", "/events", {"name": "paid", "data": data(EVENT - 4 + over)})
    if over:
        refused(reply, EVENT, EVENT + 1)
    assert len((await rest.ok("GET", "/events"))["data"]) == 1 - over


@AT_AND_OVER
async def test_name_and_data_of_an_event_that_a_step_sends(rest: Rest, over: int) -> None:
    found = await ended(rest, send_event("s", {"name": "paid", "data": data(EVENT - 4 + over)}))
    step = step_of(found, "s")
    assert step["status"] == ("failed" if over else "completed")
    if over:
        assert step["error"]["name"] == "TooLarge"
        assert f"{EVENT + 1} bytes" in step["error"]["message"]


@API
@AT_AND_OVER
async def test_events_of_a_request(rest: Rest, over: int) -> None:
    reply = await rest.call("POST", "/events", [{"name": "a"}] * (EVENTS + over))
    if over:
        refused(reply, EVENTS, EVENTS + 1)
    assert len((await rest.ok("GET", "/events"))["data"]) == (0 if over else EVENTS)


@API
@AT_AND_OVER
async def test_data_of_a_start_and_of_a_replay(rest: Rest, over: int) -> None:
    async with function(rest, work=replaying()):
        first = await rest.start("work")
        await rest.completed(first)
        for path in (f"/projects/{rest.project}/workflows/work/runs", f"/runs/{first}/replay"):
            reply = await rest.call("POST", path, {"data": data(START + over)})
            if over:
                refused(reply, START, START + 1)
            else:
                assert await rest.completed(reply.json["id"]) is None
        assert len(await rest.runs()) == (1 if over else 3)


@AT_AND_OVER
async def test_output_of_a_step(rest: Rest, over: int) -> None:
    found = await ended(rest, completed("s", text(OUTPUT + over)))
    assert found["status"] == "completed"
    step = step_of(found, "s")
    if over:
        assert (step["status"], step["output"], step["error"]["name"]) == ("failed", None, "TooLarge")
        assert f"{OUTPUT + 1} bytes, {OUTPUT} are allowed" in step["error"]["message"]
    else:
        assert step["output"] == text(OUTPUT)


@AT_AND_OVER
async def test_output_of_a_run(rest: Rest, over: int) -> None:
    found = await ended(rest, output=text(OUTPUT + over))
    if over:
        assert (found["status"], found["output"], found["error"]["name"]) == ("failed", None, "TooLarge")
        assert f"{OUTPUT + 1} bytes, {OUTPUT} are allowed" in found["error"]["message"]
    else:
        assert (found["status"], found["output"]) == ("completed", text(OUTPUT))


@AT_AND_OVER
async def test_data_of_an_invoke(rest: Rest, over: int) -> None:
    invoke = {"op": "invoke", "id": "s", "workflow": "child", "data": plain(OUTPUT + over)}
    async with scripted(rest, work=replaying(invoke), child=replaying()):
        found = await rest.end(await rest.start("work"))
    step = step_of(found, "s")
    assert (step["status"], len(found["children"])) == (("failed", 0) if over else ("completed", 1))
    if over:
        assert f"{OUTPUT + 1} bytes, {OUTPUT} are allowed" in step["error"]["message"]


@AT_AND_OVER
async def test_memoized_results_of_a_run(rest: Rest, over: int) -> None:
    sizes = (OUTPUT, OUTPUT, STATE - 2 * OUTPUT + over)
    found = await ended(rest, *(completed(f"s{number}", text(size)) for number, size in enumerate(sizes)))
    if over:
        assert (found["status"], found["error"]["name"]) == ("failed", "LimitExceeded")
        assert f"{STATE + 1} bytes" in found["error"]["message"]
        assert str(STATE) in found["error"]["message"]
    else:
        assert found["status"] == "completed"


@AT_AND_OVER
async def test_steps_of_a_run(rest: Rest, over: int) -> None:
    found = await ended(rest, *(completed(f"s{number}") for number in range(STEPS + over)))
    assert len(found["steps"]) == STEPS
    if over:
        assert (found["status"], found["error"]["name"]) == ("failed", "LimitExceeded")
        assert f"at most {STEPS} steps" in found["error"]["message"]
        assert "invoke itself" in found["error"]["message"]
        assert "differ at every call" in found["error"]["message"]
    else:
        assert found["status"] == "completed"


@AT_AND_OVER
async def test_bytes_of_a_step_id(rest: Rest, over: int) -> None:
    id = "é" + "x" * (STEP_ID - 2 + over) + ":12"
    found = await ended(rest, completed(id, 1))
    (step,) = found["steps"]
    assert (step["id"], step["status"]) == (id, "failed" if over else "completed")
    if over:
        assert step["error"]["name"] == "TooLarge"
        assert f"{STEP_ID + 1} bytes before its counter, {STEP_ID} are allowed" in step["error"]["message"]


@AT_AND_OVER
async def test_bytes_of_a_step_id_with_its_counter(rest: Rest, over: int) -> None:
    id = "x" * STEP_ID
    id += ":1" * ((STORED_ID - STEP_ID - 3) // 2) + ":12" + "0" * over
    assert len(id) == STORED_ID + over
    found = await ended(rest, completed(id, 1))
    if over:
        assert (found["status"], found["error"]["name"], found["steps"]) == ("failed", "ProtocolError", [])
        assert str(STORED_ID) in found["error"]["message"]
    else:
        assert [step["id"] for step in found["steps"]] == [id]


@API
@AT_AND_OVER
async def test_bytes_of_an_idempotency_key(rest: Rest, over: int) -> None:
    await rest.ok("PUT", f"/projects/{rest.project}/workflows", {"workflows": [{"name": "work"}]})
    body = {"idempotency_key": "é" + "x" * (KEY - 2 + over)}
    reply = await rest.call("POST", f"/projects/{rest.project}/workflows/work/runs", body)
    if over:
        assert str(KEY) in json.dumps(reply.problem(422))
    assert len(await rest.runs()) == 1 - over


@API
@AT_AND_OVER
async def test_workflows_of_a_project(rest: Rest, over: int) -> None:
    path = f"/projects/{rest.project}/workflows"
    await rest.ok("PUT", path, {"workflows": []})
    reply = await rest.call("PUT", path, {"workflows": [{"name": f"w{number}"} for number in range(WORKFLOWS + over)]})
    if over:
        refused(reply, WORKFLOWS, WORKFLOWS + 1)
    assert len((await rest.ok("GET", path))["data"]) == (0 if over else WORKFLOWS)
    async with function(rest, served=replaying()) as made:
        made.definitions = [{"name": f"s{number}"} for number in range(WORKFLOWS + over)]
        reply = await rest.call("POST", f"{path}/sync", {})
        if over:
            refused(reply, WORKFLOWS, WORKFLOWS + 1)
        assert len((await rest.ok("GET", path))["data"]) == (1 if over else WORKFLOWS)


@only_over("stream", because="over HTTP, the function is asked for its list")
@AT_AND_OVER
async def test_workflows_that_a_worker_brings(rest: Rest, over: int) -> None:
    path = f"/projects/{rest.project}/workflows"
    definitions = [{"name": f"w{number}"} for number in range(WORKFLOWS + over)]
    connecting = fake_worker(await door(rest), {}, tenant=rest.tenant, definitions=definitions)
    if over:
        with pytest.raises(Refused, match=f"INVALID_DEFINITIONS.*{WORKFLOWS}"):
            await connecting.__aenter__()
    else:
        async with connecting:
            pass
    assert len((await rest.ok("GET", path))["data"]) == (0 if over else WORKFLOWS)


@API
@AT_AND_OVER
@pytest.mark.parametrize(("path", "limit"), [("/projects", BODY), ("/events", EVENTS_BODY)])
async def test_bytes_of_a_body(rest: Rest, path: str, limit: int, over: int) -> None:
    body = json.dumps({"name": "a"} if path == "/events" else {"slug": "a"}).encode()
    reply = await rest.call("POST", path, raw=body.ljust(limit + over))
    if over:
        assert f"{limit} bytes" in reply.problem(413)["detail"]
    else:
        assert reply.status < 300
    assert len((await rest.ok("GET", "/events"))["data"]) == (1 - over if path == "/events" else 0)


@AT_AND_OVER
async def test_waits_that_every_event_of_their_name_is_compared_with(rest: Rest, over: int) -> None:
    wait = wait_for_event("w", "paid", timeout="1h", **{"if": "async.data.n > event.data.n"})
    async with scripted(rest, work=replaying(wait)):
        for _ in range(SCANNED - 1 + over):
            await rest.becomes(await rest.start("work", {"n": 1}), "waiting")
        last = await rest.start("work", {"n": 1})
        if over:
            step = step_of(await rest.end(last), "w")
            assert step["error"]["name"] == "LimitExceeded"
            assert f"{SCANNED} waits for 'paid'" in step["error"]["message"]
        else:
            await rest.becomes(last, "waiting")
        sent = await rest.send("paid", {"n": 2})
        assert sent["resumed"] == SCANNED


async def test_a_wait_or_an_invoke_without_a_timeout(rest: Rest) -> None:
    invoke = {"op": "invoke", "id": "call", "workflow": "child"}
    ops = (wait_for_event("w", "never"), invoke)
    async with scripted(rest, work=replaying(*ops), child=replaying(wait_for_event("w", "never", timeout="1h"))):
        found = await rest.end(await rest.start("work"))
    waited, called = step_of(found, "w"), step_of(found, "call")
    assert (waited["status"], waited["output"]) == ("completed", None)
    assert (called["status"], called["error"]["name"]) == ("failed", "InvokeTimeout")
