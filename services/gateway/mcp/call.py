"""A tool that is called: the gRPC method of its route, with the token of whoever calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from services.core.domain.errors import DomainError, Malformed, TooLarge
from services.core.domain.safe_text import is_storable
from services.core.runtime.off_loop import OffLoop
from services.gateway.backends import Backends, Credentials
from services.gateway.endpoint import Bounds
from services.gateway.fault_names import performed
from services.gateway.mcp.message import Message
from services.gateway.mcp.tool import Tool
from services.gateway.problem import as_domain_error, problem_of, retry_after
from services.gateway.route import Input

_MOST_BYTES = 512 * 1024
"""More is nothing for an agent, and would hold up everybody while MCP's own server encodes it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What came with one HTTP request. `abilities` None means that they are not known for now."""

    backends: Backends
    bounds: Bounds
    off_loop: OffLoop
    credentials: Credentials
    trace_id: str
    abilities: Collection[str] | None
    message: Message

    def may_use(self, tool: Tool) -> bool:
        """Whether there is use in showing this tool. Each call of it is the service's to judge."""
        return self.abilities is None or tool.route.permission is None or tool.route.permission in self.abilities


async def call_tool(tool: Tool, asked: Asked) -> bytes | DomainError:
    """The answer of the tool's route as JSON, or what went wrong, as its caller may see it."""
    route = tool.route
    try:
        found, name, message = await asked.off_loop.run(asked.message.size, _read, tool, asked)
        timeout_s = route.timeout_s(found) if callable(route.timeout_s) else route.timeout_s

        credentials = asked.credentials._replace(name=name)

        async def perform(message: Any) -> Any:
            return await asked.backends.call(route.rpc, message, credentials=credentials, timeout_s=timeout_s)

        response = await performed(route, perform, message)
        answer = _shown(tool, response, found)
        return answer if len(answer) <= _MOST_BYTES else _too_large(len(answer))
    except Exception as error:
        return as_domain_error(error, asked.trace_id)


def _too_large(size: int) -> DomainError:
    return TooLarge(
        f"the answer has {size} bytes, and tools answer with at most {_MOST_BYTES}: ask for less, or ask the REST API",
        reason="ANSWER_TOO_LARGE",
    )


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
    arguments = asked.message.arguments
    if isinstance(arguments, DomainError):
        raise arguments
    found, name = tool.read(arguments, asked.bounds.events)
    if not all(is_storable(value) for value in found.path.values()):
        raise Malformed("an id holds what no id can")
    return found, name, tool.route.request(found)


def _shown(tool: Tool, response: Any, found: Input) -> bytes:
    try:
        return msgspec.json.encode(tool.route.answer(response, found).body)
    except DomainError as error:
        # The fault is the service's: the caller's input has passed.
        raise RuntimeError(f"the answer of {tool.route.rpc} cannot be shown: {error}") from error
