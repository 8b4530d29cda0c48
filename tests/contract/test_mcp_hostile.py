"""What anybody can send to `/mcp`: it is refused in the protocol's words, and no service is asked."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runr.workflows.v1 import access_service_pb2, event_service_pb2, run_service_pb2

from services.core.domain.event import EventLimits
from services.core.rpc.call_context import caller
from services.core.runtime.clock import SystemClock
from services.core.runtime.parse import Address
from services.gateway.endpoint import Bounds
from services.gateway.mcp.origin import NO_ORIGINS, Origins
from services.gateway.rate_limit import RateLimit
from services.gateway.session import csrf_token
from tests.support.grpc_backend import ADMIN
from tests.support.http_gateway import Client, gateway
from tests.support.mcp_client import HEADERS, called, post

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
MODERN = "2026-07-28"
RUN = {"run_id": "01KB8V2T1XQ4T5S0Z6WJ7N8M9P"}
BOUNDS = Bounds(body_bytes=64 << 10, events_body_bytes=26 << 20, events=EventLimits())


class Asked:
    """What reached the services."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def send(self, request: Any, _: Any) -> Any:
        self.requests.append(request)
        return event_service_pb2.SendEventsResponse(results=[event_service_pb2.EventResult(id="01J", name="paid")])

    async def get(self, request: Any, _: Any) -> Any:
        self.requests.append(request)
        return run_service_pb2.GetRunResponse()


async def _caller(_: Any, __: Any) -> Any:
    return access_service_pb2.GetCallerResponse(abilities=sorted(caller().abilities))


@pytest.fixture
async def asked() -> Asked:
    return Asked()


@pytest.fixture
async def client(asked: Asked) -> AsyncIterator[Client]:
    methods = {"access.GetCaller": _caller, "event.SendEvents": asked.send, "run.GetRun": asked.get}
    async with gateway(methods, bounds=BOUNDS) as found:
        yield found


def modern(message: Mapping[str, Any]) -> dict[str, str]:
    """The headers that the version without a handshake demands."""
    found = {"MCP-Protocol-Version": MODERN, "Mcp-Method": str(message["method"])}
    return found | ({"Mcp-Name": message["params"]["name"]} if "name" in message.get("params", {}) else {})


@pytest.mark.parametrize("version", [None, "2025-11-25", MODERN])
@pytest.mark.parametrize(
    ("raw", "codes"),
    [
        (b"", {PARSE_ERROR}),
        (b"{", {PARSE_ERROR}),
        (b"\xff\xfe", {PARSE_ERROR}),
        (b"[" * 60_000, {PARSE_ERROR}),
        (b'{"a":' * 10_000, {PARSE_ERROR}),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 9_000 + b"]" * 9_000 + b"}", {PARSE_ERROR}),
        (b"null", {INVALID_REQUEST, INVALID_PARAMS}),
        (b"7", {INVALID_REQUEST, INVALID_PARAMS}),
        (b"[]", {INVALID_REQUEST, INVALID_PARAMS}),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', {INVALID_REQUEST, INVALID_PARAMS}),
        (b'{"id":1,"method":"ping"}', {INVALID_REQUEST, INVALID_PARAMS}),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', {INVALID_REQUEST, INVALID_PARAMS}),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', {INVALID_REQUEST, INVALID_PARAMS}),
    ],
)
async def test_what_is_no_message_is_a_bad_request(
    client: Client, asked: Asked, version: str | None, raw: bytes, codes: set[int]
) -> None:
    said = {} if version is None else {"MCP-Protocol-Version": version, "Mcp-Method": "ping"}
    reply = await post(client, raw=raw, headers=said)
    assert reply.status == 400, reply.body
    assert reply.json["error"]["code"] in codes
    assert asked.requests == []


@pytest.mark.parametrize("version", [None, "2025-11-25", MODERN])
@pytest.mark.parametrize(
    "id",
    [
        *("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1.5", "1.0", "1e2", "true", "null", "{}", "[1]"),
        *('1, "id": NaN', 'NaN, "big": ' + "9" * 5_000),
        None,
    ],
)
async def test_a_call_that_could_not_be_answered_is_refused(
    client: Client, asked: Asked, version: str | None, id: str | None
) -> None:
    for method in ("tools/call", "ping", "resources/list", "initialize"):
        message = {**called("event_send", {"name": "paid"}), "method": method, "id": "HERE"}
        raw = json.dumps(message)
        raw = (
            raw.replace(', "id": "HERE"', "").replace('"id": "HERE", ', "") if id is None else raw.replace('"HERE"', id)
        )
        assert "HERE" not in raw
        said = {} if version is None else {**modern(message), "MCP-Protocol-Version": version}
        reply = await post(client, raw=raw.encode(), headers=said)
        assert (reply.status, reply.json["error"]["code"], reply.json["id"]) == (400, INVALID_REQUEST, None)
    assert asked.requests == []


@pytest.mark.parametrize("id", [0, -1, 10**40, "", "x", "NaN"])
async def test_every_id_of_a_string_or_a_whole_number_is_answered(client: Client, asked: Asked, id: int | str) -> None:
    reply = await post(client, {**called("event_send", {"name": "paid"}), "id": id})
    assert (reply.status, reply.json["id"]) == (200, id)
    assert len(asked.requests) == 1


async def test_a_notification_is_accepted(client: Client) -> None:
    for method in ("notifications/initialized", "notifications/cancelled", "notifications/x"):
        assert (await post(client, {"jsonrpc": "2.0", "method": method})).status == 202


@pytest.mark.parametrize("version", ["2020-01-01", "latest", "", "2025-06-18 ", "2026-07-28,2025-06-18"])
async def test_a_version_that_is_not_spoken_is_refused(client: Client, asked: Asked, version: str) -> None:
    message = called("workflow_run_status", RUN)
    reply = await post(client, message, headers={**modern(message), "MCP-Protocol-Version": version})
    if version.strip() != "2025-06-18":
        assert reply.status == 400
        assert asked.requests == []


async def test_a_header_that_says_another_tool_than_the_message_is_refused(client: Client, asked: Asked) -> None:
    message = called("workflow_run_status", RUN)
    message["params"]["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "agent", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    assert (await post(client, message, headers=modern(message))).status == 200
    asked.requests.clear()
    reply = await post(client, message, headers={**modern(message), "Mcp-Name": "workflows_list"})
    assert reply.status == 400
    assert asked.requests == []


@pytest.mark.parametrize("method", ["resources/list", "prompts/get", "logging/setLevel", "sampling/createMessage", "x"])
async def test_a_method_that_is_not_served_is_refused(client: Client, method: str) -> None:
    reply = await post(client, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
    assert reply.json["error"]["code"] in (METHOD_NOT_FOUND, INVALID_PARAMS)
    assert reply.json["id"] == 1


async def test_a_tool_that_is_not_there_is_refused(client: Client, asked: Asked) -> None:
    for name in ("shell", "", "workflow_run_status ", "__class__", "x" * 9_000):
        reply = await post(client, called(name, RUN))
        assert reply.json["error"]["code"] == INVALID_PARAMS
        assert len(reply.body) < 1_000
    wrong: tuple[Any, ...] = ({}, {"name": 7}, {"name": "workflow_run_status", "arguments": [1]}, [])
    for params in wrong:
        reply = await post(client, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        assert reply.json["error"]["code"] in (INVALID_PARAMS, INVALID_REQUEST)
    assert asked.requests == []


async def test_a_body_is_bounded_whether_it_says_its_size_or_not(client: Client, asked: Asked) -> None:
    big = json.dumps(called("event_send", {"name": "paid", "data": {"x": "x" * BOUNDS.body_bytes}})).encode()
    (await post(client, raw=big)).problem(413)

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(big), 1_000):
            yield big[start : start + 1_000]

    (await client.call("POST", "/mcp", raw=chunks(), headers=HEADERS)).problem(413)
    bomb = gzip.compress(b" " * (100 * BOUNDS.body_bytes))
    (await post(client, raw=bomb, headers={"Content-Encoding": "gzip"})).problem(413)
    (await post(client, raw=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})).problem(400)
    (await post(client, raw=b"{}", headers={"Content-Encoding": "br"})).problem(415)
    assert asked.requests == []


async def test_a_stranger_is_refused_before_the_message_is_read(client: Client, asked: Asked) -> None:
    for token in (None, "unknown", "\N{SNOWMAN}"):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        reply = await post(client, raw=b"no message", headers=headers, token=None)
        reply.problem(401)
        assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    assert asked.requests == []


async def test_a_key_in_a_header_is_not_ignored(client: Client, asked: Asked) -> None:
    (await post(client, called("workflow_run_status", RUN), headers={"Idempotency-Key": "k"})).problem(501)
    assert asked.requests == []


async def test_requests_of_a_token_are_limited() -> None:
    limit = RateLimit(1, 2, SystemClock())
    async with gateway({"access.GetCaller": _caller}, limit=limit) as client:
        statuses = [(await post(client, {"jsonrpc": "2.0", "id": 1, "method": "ping"})).status for _ in range(9)]
    assert statuses[:2] == [200, 200]
    assert 429 in statuses


async def test_a_cookie_is_no_token(client: Client, asked: Asked) -> None:
    for name in ("runr_session", "__Host-runr_session"):
        headers = {"Cookie": f"{name}={ADMIN}", "X-CSRF-Token": csrf_token(ADMIN)}
        (await post(client, called("workflow_run_status", RUN), headers=headers, token=None)).problem(401)
    assert asked.requests == []


async def test_a_web_page_of_another_site_is_refused(client: Client, asked: Asked) -> None:
    evil = ("https://evil.example", "null", "file://", "http://127.0.0.1.evil.example", f"http://{client.address}", "")
    for origin in evil:
        (await post(client, called("workflow_run_status", RUN), headers={"Origin": origin})).problem(403)
    assert asked.requests == []


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
async def test_there_are_neither_sessions_nor_streams(client: Client, method: str) -> None:
    reply = await client.call(method, "/mcp", headers={"Accept": "text/event-stream"})
    assert reply.problem(405)
    assert reply.headers["Allow"] == "POST"


async def test_what_is_no_json_by_its_header_is_refused(client: Client) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        reply = await post(client, called("workflow_run_status", RUN), headers={"Content-Type": content_type})
        assert reply.status in (400, 415)
    assert (await post(client, called("x"), headers={"Accept": "text/html"})).status == 406


DATA = '{"b": 1.0, "a": 1e2, "big": 123456789012345678901234567890, "escape": "\\u00e9\\u0000", "nul": null}'


async def test_what_is_sent_arrives_byte_for_byte(client: Client, asked: Asked) -> None:
    raw = json.dumps(called("event_send", {"name": "paid", "data": "HERE"})).replace('"HERE"', DATA)
    reply = await post(client, raw=raw.encode())
    assert not reply.json["result"]["isError"], reply.body
    assert asked.requests[0].events[0].data == DATA.encode()


@pytest.mark.parametrize("data", ['{"a": 1, "a": 2}', '{"n": 1e400}', '{"n": NaN}', "[" * 200 + "]" * 200])
async def test_json_that_no_event_may_hold_is_refused(client: Client, asked: Asked, data: str) -> None:
    raw = json.dumps(called("event_send", {"name": "paid", "data": "HERE"})).replace('"HERE"', data)
    reply = await post(client, raw=raw.encode())
    assert reply.status == 400 or reply.json["result"]["isError"], reply.body
    assert asked.requests == []


@pytest.mark.parametrize("name", ["a\x00b", "\\ud800", "../../etc", "a b", "x" * 300])
async def test_an_id_that_is_none_is_refused_or_asked_for_as_it_is(client: Client, asked: Asked, name: str) -> None:
    raw = json.dumps(called("workflow_run_status", {"run_id": "HERE"})).replace("HERE", name.replace("\x00", "\\u0000"))
    reply = await post(client, raw=raw.encode())
    refused = reply.status == 400 or reply.json["result"]["isError"]
    assert refused or asked.requests[0].run_id == name


async def test_an_answer_may_hold_what_payloads_may(asked: Asked) -> None:
    deep = "[" * 100 + "]" * 100
    output = f'{{"lone": "\\ud800", "deep": {deep}, "big": {10**300}, "nul": "\\u0000"}}'.encode()

    async def get(_: Any, __: Any) -> Any:
        response = run_service_pb2.GetRunResponse()
        response.run.output = output
        return response

    async with gateway({"access.GetCaller": _caller, "run.GetRun": get}) as client:
        for headers in ({}, {"MCP-Protocol-Version": "2025-06-18"}):
            reply = await post(client, called("workflow_run_status", RUN), headers=headers)
            result = reply.json["result"]
            assert output.decode() in result["content"][0]["text"]
            assert result["structuredContent"]["output"]["lone"] == "\N{REPLACEMENT CHARACTER}"
            assert result["structuredContent"]["output"]["big"] == 10**300


async def test_an_answer_that_is_too_much_for_an_agent_is_refused(asked: Asked) -> None:
    async def get(_: Any, __: Any) -> Any:
        response = run_service_pb2.GetRunResponse()
        response.run.output = json.dumps("x" * 600_000).encode()
        return response

    async with gateway({"access.GetCaller": _caller, "run.GetRun": get}) as client:
        reply = await post(client, called("workflow_run_status", RUN))
        assert (await client.call("GET", f"/api/runs/{RUN['run_id']}")).status == 200
    assert reply.json["result"]["content"][0]["text"].startswith("Too large (413)")


async def test_only_the_arguments_of_a_tool_may_be_big(client: Client, asked: Asked) -> None:
    for message in (
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": {"x": "x" * 40_000}}},
        called("event_send", {"name": "paid"}, more=["x"] * 20_000),
        called("event_send", "x" * 40_000),
    ):
        (await post(client, message)).problem(413)
    # What is big and no message at all is not given to the SDK.
    reply = await post(client, raw=b'{"a": 1, "a": 2, "b": "' + b"x" * 40_000 + b'"}')
    assert (reply.status, reply.json["error"]["code"]) == (400, PARSE_ERROR)
    big = called("event_send", {"name": "paid", "data": {"x": "x" * 50_000}})
    assert not (await post(client, big)).json["result"]["isError"]
    assert len(asked.requests) == 1


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
_messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(["tools/call", "tools/list", "ping", "initialize"])},
    optional={
        "id": st.one_of(st.integers(0, 9), st.text(max_size=5), _json),
        "params": st.one_of(
            _json,
            st.fixed_dictionaries(
                {"name": st.sampled_from(["event_send", "workflow_run_status", "x"])},
                optional={"arguments": _json, "_meta": _json},
            ),
        ),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(message=_messages, version=st.sampled_from([None, "2025-11-25", MODERN]))
async def test_no_message_is_too_much(client: Client, message: dict[str, Any], version: str | None) -> None:
    headers = {} if version is None else {**modern(message | {"params": {}}), "MCP-Protocol-Version": version}
    reply = await post(client, message, headers=headers)
    assert reply.status < 500, reply.body


PAGES = Origins.of(("https://api.example.com/x", "https://agents.example.com:8443"), Address("0.0.0.0", 8080))
HERE = Origins.of((), Address("127.0.0.1", 8080))


@pytest.mark.parametrize(
    ("origins", "origin", "taken"),
    [
        (NO_ORIGINS, None, True),
        (PAGES, "https://api.example.com", True),
        (PAGES, "https://API.example.com:443", True),
        (PAGES, "https://agents.example.com:8443", True),
        (PAGES, "https://agents.example.com", False),
        (PAGES, "http://api.example.com", False),
        (PAGES, "http://localhost:3000", False),
        (HERE, "http://localhost:3000", True),
        (HERE, "http://[::1]:3000", True),
        (HERE, "http://127.0.0.1", True),
        (HERE, "http://localhost.evil.example", False),
        (HERE, "http://evil.example", False),
        (HERE, "http://[::1", False),
    ],
)
async def test_pages_are_known_by_their_origin(origins: Origins, origin: str | None, taken: bool) -> None:
    async with gateway({"access.GetCaller": _caller}, origins=origins) as client:
        headers = {} if origin is None else {"Origin": origin}
        reply = await post(client, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
    assert (reply.status == 200) == taken


def test_a_gateway_that_nobody_asks_for_tools_has_not_loaded_the_sdk() -> None:
    code = "import sys, services.gateway.app; print([m for m in ('mcp', 'pydantic', 'starlette') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_without_the_sdk_the_answer_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "services.gateway.mcp.server", raising=False)
    for module in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.setitem(sys.modules, module, None)
    async with gateway({"access.GetCaller": _caller}) as client:
        problem = (await post(client, {"jsonrpc": "2.0", "id": 1, "method": "ping"})).problem(501)
    assert "in its checkout pip install ./proto '.[mcp]'" in problem["detail"]
