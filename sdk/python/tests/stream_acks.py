"""Steps' results that need no work, and an engine that acknowledges them all."""

from __future__ import annotations

from typing import Any

from sdk.python.tests.stream_engine import EngineStream, SentOp


async def give(value: Any) -> Any:
    return value


async def finish(stream: EngineStream) -> SentOp:
    """Acknowledges ops until the last one."""
    while True:
        op = await stream.op()
        stream.ack(op)
        if op.last:
            return op
