"""Ask a function which workflows it serves (protocol sections 2 and 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services.core.domain.envelope import introspect_request
from services.core.domain.function_answer import Introspection, parse_introspection
from services.executor.function_client import FunctionClient, Target


async def introspect(
    client: FunctionClient, target: Target, *, unix_s: int, timeout_s: float, headers: Mapping[str, str] | None = None
) -> Introspection:
    """The function's own list of workflows, not yet validated.

    `unix_s` is now in unix seconds, `headers` the trace context of the caller. Raises FunctionFault, with the same
    names as an execute request.
    """
    answer = await client.call(target, "introspect", introspect_request(unix_s), headers or {}, timeout_s)
    # Away from the loop: a list of definitions may be as big as an answer can be.
    return await asyncio.to_thread(parse_introspection, answer.status, answer.body)
