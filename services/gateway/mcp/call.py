"""A tool that is called: the gRPC method of its route, with the token of whoever calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from services.core.domain.errors import DomainError, Malformed
from services.core.domain.json_fault import MAX_DEPTH
from services.core.domain.json_text import Raw, read_object
from services.core.domain.safe_text import is_storable
from services.core.runtime.off_loop import OffLoop
from services.gateway.backends import Backends, Credentials
from services.gateway.endpoint import Bounds
from services.gateway.mcp.tool import Tool
from services.gateway.problem import as_domain_error, problem_of, retry_after
from services.gateway.route import Input

_ENVELOPE_DEPTH = 2


@dataclass(frozen=True, slots=True)
class Asked:
    """What came with one HTTP request. `body` is its JSON-RPC message; `abilities` None means that they are not known
    for now.
    """

    backends: Backends
    bounds: Bounds
    off_loop: OffLoop
    credentials: Credentials
    trace_id: str
    abilities: Collection[str] | None
    body: bytes

    def may_use(self, tool: Tool) -> bool:
        """Whether there is use in showing this tool. Each call of it is the service's to judge."""
        return self.abilities is None or tool.route.permission is None or tool.route.permission in self.abilities


async def call_tool(tool: Tool, asked: Asked) -> bytes | DomainError:
    """The answer of the tool's route as JSON, or what went wrong, as its caller may see it."""
    route = tool.route
    try:
        found, name, message = await asked.off_loop.run(len(asked.body), _read, tool, asked)
        timeout_s = route.timeout_s(found) if callable(route.timeout_s) else route.timeout_s

        credentials = asked.credentials._replace(name=name)

        async def perform(message: Any) -> Any:
            return await asked.backends.call(route.rpc, message, credentials=credentials, timeout_s=timeout_s)

        response = await (perform(message) if route.perform is None else route.perform(perform, message))
        return _shown(tool, response, found)
    except Exception as error:
        return as_domain_error(error, asked.trace_id)


def failure_text(error: DomainError, trace_id: str) -> str:
    """A failure as an agent reads it: what a problem answer of the REST API says."""
    problem = problem_of(error, trace_id)
    lines = [f"{problem.title} ({problem.status}): {problem.detail}"]
    lines += [f"- {fault.path}: {fault.message}" if fault.path else f"- {fault.message}" for fault in problem.errors]
    seconds = retry_after(error)
    if seconds is not None:
        lines.append(f"Try again after {seconds} s.")
    lines.append(f"trace id: {trace_id}")
    return "\n".join(lines)


def _read(tool: Tool, asked: Asked) -> tuple[Input, str | None, Any]:
    found, name = tool.read(_arguments(asked.body), asked.bounds.events)
    if not all(is_storable(value) for value in found.path.values()):
        raise Malformed("an id holds what no id can")
    return found, name, tool.route.request(found)


def _arguments(body: bytes) -> str:
    """The tool's arguments as they were written: what MCP's own server makes of them has lost how."""
    message = read_object(body, max_depth=MAX_DEPTH + _ENVELOPE_DEPTH)
    params = read_object(message["params"].text, max_depth=MAX_DEPTH + 1)
    arguments = params.get("arguments", Raw(None, "null"))
    return "{}" if arguments.value is None else arguments.text


def _shown(tool: Tool, response: Any, found: Input) -> bytes:
    try:
        return msgspec.json.encode(tool.route.answer(response, found).body)
    except DomainError as error:
        # The fault is the service's: the caller's input has passed.
        raise RuntimeError(f"the answer of {tool.route.rpc} cannot be shown: {error}") from error
