"""The official SDK's client of MCP, as an agent has it, and messages as anybody can send them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.http_gateway import Client as HttpClient
from tests.support.http_gateway import Reply

Era = Literal["legacy", "2026-07-28"]
ERAS: tuple[Era, ...] = ("legacy", "2026-07-28")
"""Versions of MCP with a handshake, and the one in which each request says everything."""

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_TIMEOUT_S = 60.0


@asynccontextmanager
async def agent(
    url: str, token: str, era: Literal["auto"] | Era = "auto", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Client]:
    """A connected client."""
    sent = {"Authorization": f"Bearer {token}", **(headers or {})}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=_TIMEOUT_S, trust_env=False) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        yield client


def text_of(result: Any) -> str:
    """The text of a tool's answer."""
    (content,) = result.content
    return str(content.text)


def called(tool: str, arguments: Any = None, **params: Any) -> dict[str, Any]:
    """The message that calls a tool."""
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": {} if arguments is None else arguments, **params},
    }


async def post(
    client: HttpClient,
    message: Any = None,
    *,
    raw: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> Reply:
    """What the gateway answers to a message of the handshake's versions, or to whatever `raw` is."""
    sent = json.dumps(message).encode() if raw is None else raw
    return await client.call("POST", "/mcp", raw=sent, headers={**HEADERS, **(headers or {})}, **options)
