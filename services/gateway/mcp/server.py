"""The MCP server itself, by the official SDK: which tools there are, and what a call of one is answered with.

Imported at the first request: the SDK costs half a second and tens of megabytes, which gateways that nobody asks for
tools need not pay.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import (
    Tool as Listed,
)

from services.core.domain.errors import DomainError
from services.gateway.mcp.asgi import Message
from services.gateway.mcp.call import Asked, call_tool, failure_text
from services.gateway.mcp.tool import Tool

_INSTRUCTIONS = (
    "Durable workflows: a run executes the steps of a workflow, each once, through crashes and restarts. An event"
    " starts the workflows that it triggers and resumes the runs that wait for it. What a run has done outside is not"
    " undone by cancelling it."
)
_TRACE = "workflows.runr.dev/trace_id"
_lone_surrogate = re.compile(r"[\ud800-\udfff]")

Context = ServerRequestContext[Any]


class McpServer:
    """Answers MCP's messages. It keeps nothing between two requests, so any replica may be asked."""

    def __init__(self, tools: Sequence[Tool], *, max_body_bytes: int) -> None:
        """`max_body_bytes` was checked when the body was read; the SDK has a lower limit of its own."""
        self._tools = {tool.name: tool for tool in tools}
        self._listed = {tool.name: _listed(tool) for tool in tools}
        self._max_body_bytes = max_body_bytes
        self._server: Server[Any] = Server(
            "runr",
            title="RunR workflows",
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
            # None of our arguments is told in a header too.
            get_tool_input_schema=lambda _: None,
        )
        # The gateway has a span of each request already.
        self._server.middleware.clear()
        # It tells of every request, and of what clients do wrong.
        logging.getLogger("mcp").setLevel(logging.ERROR)

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        """The ASGI application."""
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._max_body_bytes
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _list(self, context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        asked = _asked(context)
        return ListToolsResult(tools=[self._listed[name] for name, tool in self._tools.items() if asked.may_use(tool)])

    async def _call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:100]!r}; see tools/list")
        asked = _asked(context)
        answer = await call_tool(tool, asked)
        meta = {_TRACE: asked.trace_id}
        if isinstance(answer, DomainError):
            told = failure_text(answer, asked.trace_id)
            return CallToolResult(content=[TextContent(text=told)], is_error=True, _meta=meta)
        text = answer.decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=_structured(text), _meta=meta)


def _listed(tool: Tool) -> Listed:
    return Listed(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=ToolAnnotations(
            read_only_hint=not (tool.adds or tool.changes),
            destructive_hint=tool.changes,
            idempotent_hint=tool.repeatable,
            open_world_hint=False,
        ),
    )


def _asked(context: Context) -> Asked:
    assert context.request is not None
    asked: Asked = context.request.scope["runr"]
    return asked


def _structured(text: str) -> Any:
    """The answer decoded. A lone surrogate, which payloads may hold and UTF-8 cannot, is told in the text alone."""
    value = json.loads(text)
    return _speakable(value) if "\\ud" in text.lower() else value


def _speakable(value: Any) -> Any:
    if isinstance(value, str):
        return _lone_surrogate.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, list):
        return [_speakable(each) for each in value]
    if isinstance(value, dict):
        return {_speakable(name): _speakable(each) for name, each in value.items()}
    return value
