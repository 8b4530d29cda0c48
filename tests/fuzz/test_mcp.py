"""Any message to the MCP server: never a fault of ours, and never another tenant's data."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from hypothesis import strategies as st

from services.gateway.mcp.tool import Tool
from services.gateway.mcp.tools import TOOLS
from tests.fuzz.conftest import Stage
from tests.support.fuzzing import fuzz
from tests.support.mcp_client import HEADERS, called

FEW = 20
SHARE = 0.05 / (len(TOOLS) + 1)
CALL_S = 60.0
MODERN = "2026-07-28"
VERSIONS = (None, "2024-11-05", "2025-11-25", MODERN, "2020-01-01")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
PLACES = {"project": "project", "workflow": "workflow", "run_id": "run_id", "name": "workflow"}
"""Which of the stage's names an argument may be."""

MESSAGES = st.one_of(
    JSON,
    st.fixed_dictionaries(
        {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])},
        optional={
            "id": st.integers() | st.text(max_size=5) | JSON,
            "method": st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "server/discover"])
            | st.text(max_size=20),
            "params": JSON,
        },
    ),
)


def arguments(tool: Tool, known: dict[str, list[str]]) -> st.SearchStrategy[Any]:
    """Arguments of a tool: names that there are, values of its schema's kinds, and anything at all."""
    members = {
        name: st.one_of(_of(schema), st.sampled_from(known[PLACES[name]]) if name in PLACES else JSON)
        for name, schema in tool.input_schema()["properties"].items()
    }
    return st.one_of(
        st.fixed_dictionaries({}, optional=members),
        st.fixed_dictionaries({name: each for name, each in members.items() if name in PLACES}),
        JSON,
    )


def _of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("type") == "array":
        return st.lists(_of(schema["items"]), max_size=3)
    kinds = {"integer": st.integers(), "boolean": st.booleans(), "object": st.dictionaries(st.text(max_size=5), JSON)}
    return kinds.get(str(schema.get("type")), st.text(max_size=30))


def post(stage: Stage, session: requests.Session, message: Any, version: str | None) -> requests.Response:
    """One message, as an agent of some version would send it."""
    headers = dict(HEADERS)
    if version is not None:
        headers["MCP-Protocol-Version"] = version
    response = session.post(
        f"{stage.stack.api_url}/mcp", data=json.dumps(message).encode(), headers=headers, timeout=CALL_S
    )
    stage.check(response.content, str(response.headers).encode())
    assert response.status_code < 500, response.content
    assert response.status_code == 202 or isinstance(response.json(), dict)
    return response


@pytest.fixture
def session(stage: Stage) -> Any:
    with requests.Session() as made:
        made.headers["Authorization"] = f"Bearer {stage.token}"
        yield made


@pytest.mark.parametrize("tool", TOOLS, ids=[tool.name for tool in TOOLS])
def test_no_arguments_break_a_tool(stage: Stage, session: requests.Session, tool: Tool) -> None:
    def judge(given: Any) -> None:
        response = post(stage, session, called(tool.name, given), None)
        if response.status_code == 200 and "result" in response.json():
            result = response.json()["result"]
            assert not result["content"][0]["text"].startswith("Internal error"), result
            assert result["isError"] or "structuredContent" in result

    fuzz(judge, arguments(tool, stage.known), few=FEW, share=SHARE)


def test_no_message_breaks_the_server(stage: Stage, session: requests.Session) -> None:
    def judge(value: tuple[Any, str | None]) -> None:
        message, version = value
        post(stage, session, message, version)

    fuzz(judge, st.tuples(MESSAGES, st.sampled_from(VERSIONS)), few=3 * FEW, share=SHARE)
