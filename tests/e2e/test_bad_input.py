"""Bad input through the whole engine: refused with path, value and what is allowed, and nothing of it is stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.transports import only_over

pytestmark = only_over("http", because="no code of a project is needed: the API refuses")

KNOWN = {"name": "known", "triggers": [{"event": "known.begun"}]}
EVENTS = "/events"
START = "/projects/default/workflows/known/runs"
DECLARE = "/projects/default/workflows"
PROJECTS = "/projects"
APP = "/projects/default/workflows/app"


class Bad(NamedTuple):
    """One request: what it sends where, and the refusal: its status, the path of the fault and words of its text."""

    name: str
    path: str
    body: Any
    status: int
    fault: str
    words: tuple[str, ...] = ()


def deep(levels: int) -> bytes:
    """JSON that is nested too deeply, in the data of an event."""
    return b'{"name":"known.begun","data":{"a":' + b"[" * levels + b"]" * levels + b"}}"


def workflow(**fields: Any) -> dict[str, Any]:
    """A declaration of one workflow with these fields."""
    return {"workflows": [{"name": "other", **fields}]}


EVENT_ROWS = (
    Bad("not JSON", EVENTS, b"{", 400, ""),
    Bad("text behind JSON", EVENTS, b'{"name":"a"} x', 400, ""),
    Bad("a key twice", EVENTS, b'{"name":"a","name":"b"}', 400, "name", ("comes twice",)),
    Bad("a BOM", EVENTS, b'\xef\xbb\xbf{"name":"a"}', 400, ""),
    Bad("not UTF-8", EVENTS, b'{"name":"\xff"}', 400, ""),
    Bad("a number beyond all", EVENTS, b'{"name":"a","data":{"n":1e400}}', 422, "data.n", ("1e400",)),
    Bad("NaN", EVENTS, b'{"name":"a","data":{"n":NaN}}', 400, "data.n", ("NaN",)),
    Bad("too deep", EVENTS, deep(128), 422, "data", ("128",)),
    Bad("no object", EVENTS, "known.begun", 422, "", ("a list of events", "a string")),
    Bad("no event", EVENTS, [], 422, "events", ("at least one",)),
    Bad("no name", EVENTS, {"data": {}}, 422, "name", ("required",)),
    Bad("an unknown field", EVENTS, {"name": "a", "payload": 1}, 422, "payload", ("unknown field", "data")),
    Bad("a name of the platform", EVENTS, {"name": "runr/run.failed"}, 422, "name", ("runr/",)),
    Bad("a name with blanks", EVENTS, {"name": "a b"}, 422, "name", ("a b",)),
    Bad("a name that is a number", EVENTS, {"name": 5}, 422, "name", ("a string", "a number")),
    Bad("data that is a list", EVENTS, {"name": "a", "data": [1]}, 422, "data", ("object", "a list")),
    Bad("data that is null", EVENTS, {"name": "a", "data": None}, 422, "data", ("object", "null")),
    Bad("a time that is text", EVENTS, {"name": "a", "ts": "now"}, 422, "ts", ("now",)),
    Bad("a negative time", EVENTS, {"name": "a", "ts": -1}, 422, "ts", ("-1",)),
    Bad("an id that is too long", EVENTS, {"name": "a", "id": "x" * 256}, 422, "id", ("255",)),
    Bad("an id with NUL", EVENTS, {"name": "a", "id": "a\0b"}, 422, "id", ("NUL",)),
    Bad("name beside events", EVENTS, {"name": "a", "events": [{"name": "b"}]}, 422, "name"),
    Bad("too many events", EVENTS, [{"name": "a"}] * 101, 422, "events", ("100", "101")),
    Bad("an event that is too large", EVENTS, {"name": "a", "data": {"x": "y" * 262_144}}, 413, "data", ("262144",)),
    Bad("one bad among good", EVENTS, [{"name": "known.begun"}, {"name": ""}], 422, "events[1].name"),
    Bad("a body that is too large", EVENTS, b" " * ((26 << 20) + 1), 413, ""),
)

START_ROWS = (
    Bad("start: not JSON", START, b"nonsense", 400, ""),
    Bad("start: an unknown field", START, {"dat": {}}, 422, "dat", ("unknown field", "data")),
    Bad("start: data of another type", START, {"data": "x"}, 422, "data", ("object",)),
    Bad("start: data that is too large", START, {"data": {"x": "y" * (1 << 20)}}, 413, "data", ("1048576",)),
    Bad("start: a delay that is none", START, {"delay": "soon"}, 422, "delay", ("soon",)),
    Bad("start: a time that is none", START, {"at": "tomorrow"}, 422, "at", ("tomorrow",)),
    Bad("start: delay and time", START, {"delay": 1, "at": "2026-01-01"}, 422, "at"),
    Bad("start: a long key", START, {"idempotency_key": "x" * 256}, 422, "idempotency_key", ("255",)),
    Bad("start: too many tags", START, {"tags": ["a"] * 11}, 422, "tags", ("10",)),
    Bad("start: a body that is too large", START, b" " * ((4 << 20) + 1), 413, "", ("4194304",)),
)

DECLARE_ROWS = (
    Bad("declare: not JSON", DECLARE, b"[", 400, "[0]"),
    Bad("declare: no list", DECLARE, {}, 422, "workflows"),
    Bad("declare: an unknown field", DECLARE, workflow(retry=3), 422, "workflows[0].retry", ("retries",)),
    Bad("declare: a bad name", DECLARE, workflow(name="a b"), 422, "workflows[0].name", ("a b",)),
    Bad("declare: a reserved name", DECLARE, workflow(name="app"), 422, "workflows[0].name", ("app",)),
    Bad("declare: too many retries", DECLARE, workflow(retries=21), 422, "workflows[0].retries", ("20", "21")),
    Bad("declare: retries of another type", DECLARE, workflow(retries="3"), 422, "workflows[0].retries", ("3",)),
    Bad("declare: a timeout that is none", DECLARE, workflow(timeout="long"), 422, "workflows[0].timeout", ("long",)),
    Bad("declare: a timeout of nothing", DECLARE, workflow(timeout=0), 422, "workflows[0].timeout", ("1s", "got 0")),
    Bad(
        "declare: a bad expression",
        DECLARE,
        workflow(idempotency="event.data.id =="),
        422,
        "workflows[0].idempotency",
        ("expected",),
    ),
    Bad(
        "declare: a bad condition",
        DECLARE,
        workflow(triggers=[{"event": "a", "if": "evnt.data.x"}]),
        422,
        "workflows[0].triggers[0].if",
        ("evnt", "event"),
    ),
    Bad(
        "declare: a trigger of two kinds",
        DECLARE,
        workflow(triggers=[{"event": "a", "cron": "* * * * *"}]),
        422,
        "workflows[0].triggers[0]",
    ),
    Bad("declare: a bad event", DECLARE, workflow(triggers=[{"event": "a b"}]), 422, "workflows[0].triggers[0].event"),
    Bad(
        "declare: too many triggers",
        DECLARE,
        workflow(triggers=[{"event": f"e{n}"} for n in range(11)]),
        422,
        "workflows[0].triggers",
        ("10",),
    ),
    Bad(
        "declare: what a later version has",
        DECLARE,
        workflow(singleton={"mode": "skip"}),
        422,
        "workflows[0].singleton",
        ("not supported yet",),
    ),
    Bad("declare: one name twice", DECLARE, {"workflows": [{"name": "a"}, {"name": "a"}]}, 422, "workflows[1].name"),
    Bad("project: a bad slug", PROJECTS, {"slug": "No Slug"}, 422, "slug", ("No Slug", "a-z")),
    Bad("project: of events", PROJECTS, {"slug": "x", "config": {"trigger_type": "event"}}, 422, "config.trigger_type"),
    Bad("endpoint: another scheme", APP, {"endpoint_url": "ftp://x.example"}, 422, "endpoint_url", ("http",)),
    Bad("endpoint: credentials", APP, {"endpoint_url": "http://a:b@x.example"}, 422, "endpoint_url", ("@",)),
)

METHODS = {DECLARE: "PUT", APP: "PATCH"}
ROWS = (*EVENT_ROWS, *START_ROWS, *DECLARE_ROWS)


async def refusal(rest: Rest, row: Bad) -> str:
    """What is wrong with the answer to this request, "" for nothing."""
    raw = row.body if isinstance(row.body, bytes) else json.dumps(row.body).encode()
    reply = await rest.call(METHODS.get(row.path, "POST"), row.path, raw=raw)
    if reply.status != row.status:
        return f"{row.name}: {reply.status}, not {row.status}: {reply.body[:500]!r}"
    problem = reply.problem(row.status)
    faults = {fault["path"]: fault["message"] for fault in problem["errors"]} or {"": problem["detail"]}
    if row.fault not in faults:
        return f"{row.name}: no fault at {row.fault!r}: {faults}"
    told = f"{faults[row.fault]} {problem['detail']}"
    missing = [word for word in row.words if word not in told]
    return f"{row.name}: {missing} not in {told!r}" if missing else ""


async def stored(rest: Rest, stack: Stack) -> dict[str, Any]:
    """Everything of the tenant that a request could have changed."""
    tenant = await rest.ok("GET", "/projects")
    connection = await asyncpg.connect(stack.database_url)
    try:
        runs = await connection.fetchval("select count(*) from rt.runs r join rt.live l using (id)")
        ids = await connection.fetchval("select count(*) from rt.event_ids")
    finally:
        await connection.close()
    return {
        "projects": tenant,
        "workflows": await rest.ok("GET", DECLARE),
        "app": await rest.ok("GET", APP),
        "runs": await rest.runs(),
        "events": (await rest.ok("GET", EVENTS))["data"],
        "rows": (runs, ids),
    }


async def test_every_row_is_refused_and_nothing_is_stored(stack: Stack, rest: Rest) -> None:
    await rest.ok("PUT", DECLARE, {"workflows": [KNOWN]})
    before = await stored(rest, stack)
    wrong = [found for row in ROWS if (found := await refusal(rest, row))]
    assert not wrong, "\n".join(wrong)
    assert await stored(rest, stack) == before


async def test_every_fault_of_a_request_is_told(rest: Rest) -> None:
    body = [{"name": "a b"}, {"name": "ok"}, {"nam": "x", "ts": "now"}]
    faults = (await rest.call("POST", EVENTS, body)).faults()
    assert set(faults) == {"events[0].name", "events[2].nam", "events[2].name", "events[2].ts"}
    both = {"workflows": [{"name": "a", "retries": -1, "timeout": "x"}, {"name": ""}]}
    faults = (await rest.call("PUT", DECLARE, both)).faults()
    assert set(faults) == {"workflows[0].retries", "workflows[0].timeout", "workflows[1].name"}


@pytest.mark.parametrize("token", [None, "wrong", "rt_" + "x" * 32])
async def test_without_a_good_token_everything_is_401(rest: Rest, token: str | None) -> None:
    requests = [("POST", EVENTS, {"name": "a"}), ("POST", START, {}), ("GET", "/runs/x", None), ("PUT", DECLARE, {})]
    replies = await asyncio.gather(*(rest.call(method, path, body, token=token) for method, path, body in requests))
    for reply in replies:
        reply.problem(401)
    assert (await rest.ok("GET", EVENTS))["data"] == []


async def test_what_is_not_there_is_404(rest: Rest) -> None:
    for method, path in (
        ("GET", "/runs/01M8MT9HTGBBWZAKWD2SJY34S6"),
        ("GET", "/runs/nonsense"),
        ("GET", "/events/nonsense"),
        ("POST", "/projects/default/workflows/nobody/runs"),
        ("POST", "/projects/nobody/workflows/known/runs"),
        ("GET", "/projects/nobody/workflows"),
    ):
        (await rest.call(method, path, {} if method == "POST" else None)).problem(404)
