"""Bad input over HTTP: which status, which path, which words (engine section 3)."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runr.workflows.v1 import event_service_pb2, run_service_pb2_grpc

from services.cli import http_page
from services.core.domain.errors import FieldError, InvalidInput, TooLarge
from services.core.rpc.server import RpcServer
from services.gateway.routes.table import BASE, ROUTES
from tests.support.grpc_backend import ADMIN, LOOPBACK, VIEWER, TwoTokens, no_telemetry
from tests.support.http_gateway import BOUNDS, Client, gateway

START = "/api/projects/shop/workflows/w/runs"


async def accept(request: Any, context: Any) -> Any:
    return event_service_pb2.SendEventsResponse()


@pytest.mark.parametrize("token", [None, "", "nobody-knows-this-token", "with blank", "x" * 2_000])
async def test_a_missing_or_wrong_token_is_401(token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with gateway({}) as client:
        for method, path in (("GET", "/api/runs/r"), ("POST", START), ("GET", "/api/tokens"), ("POST", "/api/mcp")):
            reply = await client.call(method, path, token=None, headers=headers)
            reply.problem(401)
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")
        (await client.call("GET", "/api/runs/r", token=None, headers={"Authorization": "Basic eDp5"})).problem(401)


async def test_a_token_that_may_not_is_403() -> None:
    async with gateway({}) as client:
        problem = (await client.call("POST", START, token=VIEWER)).problem(403)
        assert "workflows.run" in problem["detail"]
        for tenant in ("foreign", "bad name", "x" * 200):
            (await client.call("GET", "/api/runs/r", headers={"X-Tenant-ID": tenant})).problem(403)


@pytest.mark.parametrize(
    "raw",
    [b"{", b"nonsense", b'{"data": {"a": 1,}}', b'{"data":{}} x', b'{"data":{},"data":{}}', b"\xff\xfe", b"{'a':1}"],
)
async def test_what_is_not_json_is_400(raw: bytes) -> None:
    async with gateway({}) as client:
        (await client.call("POST", START, raw=raw)).problem(400)
        (await client.call("POST", "/api/events", raw=raw)).problem(400)


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        ([], "", "must be a JSON object, not a list"),
        ("x", "", "must be a JSON object, not a string"),
        ({"date": {}}, "date", "unknown field; allowed: data, idempotency_key"),
        ({"data": [1]}, "data", "must be an object, got [1]"),
        ({"data": None}, "data", "must be an object, got null"),
        ({"idempotency_key": 5}, "idempotency_key", "must be a string, not a number, got 5"),
        ({"idempotency_key": "x" * 256}, "idempotency_key", "at most 255 bytes"),
        ({"idempotency_key": ""}, "idempotency_key", "not empty"),
        ({"idempotency_key": "a\ud800"}, "idempotency_key", "lone surrogates"),
        ({"idempotency_key": "a\0"}, "idempotency_key", "NUL"),
        ({"test": 1}, "test", "must be true or false, got 1"),
        ({"delay": "soon"}, "delay", "'soon' is not a duration"),
        ({"delay": -1}, "delay", "is not a duration"),
        ({"at": "tomorrow"}, "at", "'tomorrow' is not a time"),
        ({"delay": 1, "at": "2026-01-01"}, "at", "exclude each other"),
        ({"tags": "a"}, "tags", "must be a list of at most 10 strings"),
        ({"tags": [str(n) for n in range(11)]}, "tags", "at most 10"),
        ({"tags": [1]}, "tags", "must be a string"),
    ],
)
async def test_a_bad_field_is_422_with_path_value_and_rule(body: Any, path: str, words: str) -> None:
    async with gateway({}) as client:
        faults = (await client.call("POST", START, body=body)).faults()
    assert list(faults) == [path]
    assert words in faults[path]


async def test_all_faults_are_told_at_once() -> None:
    async with gateway({}) as client:
        faults = (await client.call("POST", START, body={"a": 1, "test": 2, "tags": 3})).faults()
        nested = (await client.call("POST", "/api/projects", body={"config": {"trigger_type": "x", "b": 1}})).faults()
    assert set(faults) == {"a", "test", "tags"}
    assert set(nested) == {"slug", "config.trigger_type", "config.b"}
    assert "must be one of workflow, http" in nested["config.trigger_type"]
    assert nested["slug"] == "is required"


@pytest.mark.parametrize(
    ("query", "parameter", "words"),
    [
        ("limit=0", "limit", "from 1 to 200"),
        ("limit=201", "limit", "from 1 to 200"),
        ("limit=x", "limit", "whole number"),
        ("limit=٣", "limit", "whole number"),
        ("limit=1&limit=2", "limit", "given once"),
        ("status=done", "status", "must be one of queued, running"),
        ("stauts=failed", "stauts", "unknown parameter; allowed: limit, cursor, workflow, status"),
        ("from=yesterday", "from", "is not a time"),
        ("q=", "q", "not empty"),
        ("q=%00", "q", "NUL"),
    ],
)
async def test_a_bad_query_is_422(query: str, parameter: str, words: str) -> None:
    async with gateway({}) as client:
        faults = (await client.call("GET", f"/api/projects/shop/runs?{query}")).faults()
    assert list(faults) == [parameter]
    assert words in faults[parameter]


async def test_the_faults_of_a_service_are_told_as_they_are() -> None:
    faults = [FieldError(f"workflows[{index}].name", f"is bad, got {'x' * 50!r}") for index in range(400)]

    async def refuse(request: Any, context: Any) -> Any:
        raise InvalidInput.of_all(faults)

    async with gateway({"workflow.DeclareWorkflows": refuse}) as client:
        told = (await client.call("PUT", "/api/projects/shop/workflows", raw=b"{}")).faults()
    assert told == {fault.path: fault.message for fault in faults}


@pytest.mark.parametrize(
    ("path", "field", "told"),
    [
        ("/api/projects/shop/runs", "page_token", "cursor"),
        ("/api/projects/shop/runs", "since", "from"),
        ("/api/projects/shop/runs", "workflow", "workflow"),
        ("/api/events", "name_prefix", "name"),
        ("/api/events", "project", "project_id"),
        ("/api/workflow-usage", "from_day", "from"),
    ],
)
async def test_the_faults_of_a_service_are_told_by_the_names_of_http(path: str, field: str, told: str) -> None:
    async def refuse(request: Any, context: Any) -> Any:
        raise TooLarge.of_all([FieldError(field, "is bad"), FieldError("", "so is this")], reason="BAD")

    methods = dict.fromkeys(("run.ListRuns", "event.ListEvents", "workflow.GetUsage"), refuse)
    async with gateway(methods) as client:
        problem = (await client.call("GET", path)).problem(413)
    assert problem["detail"] == f"{told}: is bad (and 1 more)"
    assert [fault["path"] for fault in problem["errors"]] == [told, ""]
    assert problem["type"].endswith("/bad")


async def test_events_are_refused_with_index_and_field() -> None:
    async with gateway({"event.SendEvents": accept}) as client:
        bad = await client.call("POST", "/api/events", body=[{"name": "a"}, {"name": "runr/x"}, {"name": "b", "x": 1}])
        large = await client.call("POST", "/api/events", body={"name": "a", "data": {"x": "y" * 300_000}})
        most = await client.call("POST", "/api/events", body=[{"name": "a", "data": {"x": "y" * 262_000}}] * 100)
    assert set(bad.faults()) == {"events[1].name", "events[2].x"}
    assert "262144" in large.problem(413)["detail"]
    assert most.status == 200


async def test_a_body_over_the_limit_is_413_announced_or_not() -> None:
    async def chunks() -> Any:
        for _ in range(5):
            yield b" " * (1 << 20)

    async with gateway({}) as client:
        for raw in (b" " * ((4 << 20) + 1), chunks()):
            assert "4194304 bytes" in (await client.call("POST", START, raw=raw)).problem(413)["detail"]
        (await client.call("POST", "/api/events", raw=b" " * ((26 << 20) + 1))).problem(413)


async def test_an_answer_is_not_many_times_its_question() -> None:
    async with gateway({}) as client:
        odd = {f"f{n}": 1 for n in range(20_000)}
        reply = await client.call("POST", START, body=odd)
        faults = reply.faults()
        assert len(faults) == 101
        assert faults[""] == "19900 more unknown fields"


async def test_a_stranger_may_send_a_short_body_only() -> None:
    async with gateway({}) as client:
        for raw in (b"[" * 20_000, gzip.compress(b"[" * 20_000)):
            headers = {"Content-Encoding": "gzip"} if raw[:1] != b"[" else {}
            (await client.call("POST", "/api/session", raw=raw, token=None, headers=headers)).problem(413)
        longest = '{"email": "' + "a" * 251 + '@bc", "password": "' + "\\u0061" * 1_025 + '"}'
        assert set((await client.call("POST", "/api/session", raw=longest.encode(), token=None)).faults()) == {
            "password"
        }


async def test_a_compressed_body_is_415_unless_it_is_gzip() -> None:
    async with gateway({"event.SendEvents": accept}) as client:
        for coding in ("deflate", "br", "gzip, gzip"):
            reply = await client.call("POST", "/api/events", raw=b"{}", headers={"Content-Encoding": coding})
            assert coding in reply.problem(415)["detail"]


def test_the_documentation_names_every_route_as_it_is_declared() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "http-api.md").read_text()
    assert text == http_page.page(text), "write it again: python -m services.cli.http_page"
    documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)` \|", text, re.MULTILINE))
    assert documented == {f"{route.method} {route.path}" for route in ROUTES}


async def test_unknown_paths_are_404_and_other_methods_405() -> None:
    async with gateway({}) as client:
        for path in ("/", "/api", "/api/nothing", "/api/runs", "/api/runs/r/", "/api/projects//runs", "/api/runs/%00"):
            (await client.call("GET", path)).problem(404)
        for method, path, allowed in (
            ("DELETE", "/api/events", {"GET", "HEAD", "POST"}),
            ("GET", "/api/projects/shop/workflows/sync", {"POST"}),
            ("DELETE", "/api/projects/shop/workflows/app", {"GET", "HEAD", "PATCH"}),
            ("PUT", "/api/runs/r", {"GET", "HEAD"}),
        ):
            reply = await client.call(method, path)
            reply.problem(405)
            assert set(reply.headers["Allow"].split(", ")) == allowed
        (await client.call("GET", "/api/projects/shop/workflows/application")).problem(501)


SMALLEST_BODIES = {
    ("POST", "/events"): {"name": "a"},
    ("POST", "/projects"): {"slug": "x"},
    ("PATCH", "/projects/{project}/workflows/app"): {"endpoint_url": None},
    ("PATCH", "/projects/{project}/workflows/{workflow}"): {"is_active": True},
    ("PATCH", "/projects/{project}/schedules/{workflow}/{trigger}"): {"is_active": True},
    ("POST", "/projects/{project}/schedules/{workflow}/{trigger}/backfill"): {"from": "2026-01-01T00:00:00Z"},
    ("POST", "/projects/{project}/runs/bulk"): {"action": "cancel", "filter": {}},
    ("POST", "/tokens"): {"name": "ci"},
    ("POST", "/members"): {"email": "a@b", "role": "viewer"},
    ("PATCH", "/members/{member_id}"): {"role": "viewer"},
    ("POST", "/tenants"): {"id": "acme"},
    ("POST", "/session"): {"email": "a@b", "password": "p"},
    ("PUT", "/session/password"): {"current_password": "p", "new_password": "q"},
    ("POST", "/internal/workflows/queue/{tenant}/{project}/{token}"): {"id": "1-0", "fields": {}},
}


def filled(path: str) -> str:
    """A route's path with something in each place."""
    return BASE + re.sub(r"{[a-z_]+}", "x", path.replace("{trigger}", "0"))


async def test_every_route_of_the_product_is_known() -> None:
    """None is 404 or 405; those that no service has yet, and those that the gateway has not yet, are 501."""
    declared = [(route.method, route.path) for route in ROUTES]
    assert len(declared) == len(set(declared))
    async with gateway({}) as client:
        for method, path in declared:
            body = None if method == "GET" else SMALLEST_BODIES.get((method, path), {})
            problem = (await client.call(method, filled(path), body=body)).problem(501)
            assert "not in this version" in problem["detail"]


async def test_an_idempotency_key_header_is_not_taken_and_ignored() -> None:
    async with gateway({"event.SendEvents": accept}) as client:
        headers = {"Idempotency-Key": "k"}
        (await client.call("POST", "/api/events", body={"name": "a"}, headers=headers)).problem(501)


@pytest.mark.parametrize("twice", ["Authorization: Bearer other", "X-Tenant-ID: a", "idempotency-key: a"])
async def test_a_header_that_decides_is_not_taken_twice(twice: str) -> None:
    async with gateway({"event.SendEvents": accept}) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        headers = f"Authorization: Bearer {ADMIN}\r\nX-Tenant-ID: default\r\nIdempotency-Key: b\r\n{twice}"
        head = f"POST {START} HTTP/1.1\r\nHost: x\r\n{headers}\r\nContent-Length: 2\r\n\r\n{{}}"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 30)
        writer.close()
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert b"problems/header-twice" in answer


class Remembers:
    """Carries out nothing, and keeps the names of what it should."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def perform(
        self, caller: object, method: str, name: str, asked: bytes, carry_out: object, **more: object
    ) -> bytes:
        self.names.append(name)
        return b""


async def test_the_name_of_a_write_is_read_once() -> None:
    once = Remembers()
    servicer = (run_service_pb2_grpc.add_RunServiceServicer_to_server, run_service_pb2_grpc.RunServiceServicer())
    server = RpcServer(LOOPBACK, [servicer], authenticator=TwoTokens(), telemetry=no_telemetry(), once=once)
    async with gateway({}, server=server) as client:
        for given in ("a", '"a"', r'"\"a\""', r'"\""', r'"a\\"', 'a"b'):
            await client.call("POST", "/api/runs/r/cancel", body={}, headers={"Idempotency-Key": given})
    assert once.names == ["a", "a", '"a"', '"', "a\\", 'a"b']


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async with gateway({}, bounds=dataclasses.replace(BOUNDS, body_timeout_s=0.2)) as client:
        reader, writer = await asyncio.open_connection(client.address.host, client.address.port)
        head = f"POST {START} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\nContent-Length: 100\r\n\r\n{{"
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 30)
        writer.close()
    assert b" 408 " in answer


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = ["data", "name", "id", "ts", "events", "delay", "at", "tags", "config", "slug", "endpoint_url", "is_active"]
BODIES = st.lists(st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=4) | ANYTHING, min_size=3, max_size=6)


async def send_everywhere(client: Client, body: Any) -> None:
    for route in ROUTES:
        if not route.reads_body:
            continue
        reply = await client.call(route.method, filled(route.path), raw=json.dumps(body).encode())
        assert reply.status in (200, 413, 422, 501), (route.path, body, reply.body)


@settings(max_examples=12, deadline=None)
@given(bodies=BODIES)
def test_no_json_is_an_internal_error(bodies: list[Any]) -> None:
    async def run() -> None:
        async with gateway({"event.SendEvents": accept}) as client:
            for body in bodies:
                await send_everywhere(client, body)

    asyncio.run(run())
