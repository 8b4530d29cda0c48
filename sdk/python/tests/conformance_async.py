"""The workflows that `runr conformance` drives, as `async def`s of the Python SDK.

`python -m sdk.python.tests.conformance_async PORT` serves them.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

from runr_workflows import AsyncStep, Context, StepError, Workflows
from sdk.python.tests.conformance_bodies import CHECKPOINT, ConformanceError, fail, kind_arguments, made, seen

wf = Workflows()


@wf.workflow("conformance-replay", checkpoint=CHECKPOINT)
async def replay(ctx: Context, step: AsyncStep) -> dict[str, Any]:
    data = ctx.event["data"]
    executed: list[str] = []

    async def body(name: str) -> dict[str, Any]:
        executed.append(name)
        await asyncio.sleep(data.get("pause_ms", 0) / 1000)
        return {"step": name, "executed": list(executed), "attempt": ctx.attempt, "tag": data.get("tag")}

    first = await step.run("first", body, "first")
    second = await step.run("second", body, "second")
    return {"first": first, "second": second, "executed": executed}


@wf.workflow("conformance-ids")
async def ids(ctx: Context, step: AsyncStep) -> list[int]:
    return [await step.run(step_id, int, n) for n, step_id in enumerate(ctx.event["data"]["ids"])]


@wf.workflow("conformance-errors")
async def errors(ctx: Context, step: AsyncStep) -> Any:
    data = ctx.event["data"]
    if data["where"] == "workflow":
        fail(data)
    try:
        return await step.run("risky", fail, data)
    except StepError as error:
        if not data["catch"]:
            raise
        await step.run("compensate", seen, error)
        return seen(error)


@wf.workflow("conformance-kinds")
async def kinds(ctx: Context, step: AsyncStep) -> dict[str, Any]:
    method, arguments, options = kind_arguments(ctx.event["data"])
    try:
        return {"result": await getattr(step, method)("it", *arguments, **options)}
    except StepError as error:
        return {"error": seen(error)}


@wf.workflow("conformance-values")
async def values(ctx: Context, step: AsyncStep) -> Any:
    data = ctx.event["data"]
    if data.get("where") == "workflow":
        return made(data)
    return {"value": await step.run("value", made, data)}


@wf.workflow("conformance-swallow")
async def swallow(ctx: Context, step: AsyncStep) -> str:
    then = ctx.event["data"]["then"]
    with suppress(BaseException):  # the rule is about code that catches all it can
        await step.run("first", int)
    if then == "raise":
        raise ConformanceError("after the swallowing")
    if then == "step":
        with suppress(BaseException):
            await step.run("second", int)
    return "swallowed"


@wf.workflow("conformance-nested")
async def nested(ctx: Context, step: AsyncStep) -> Any:
    async def outer() -> Any:
        return await step.run("inner", int)

    return await step.run("outer", outer)


@wf.workflow("conformance-together")
async def together(ctx: Context, step: AsyncStep) -> list[str]:
    return list(await asyncio.gather(*(step.run(name, str, name) for name in "abc")))


if __name__ == "__main__":
    wf.serve("127.0.0.1", int(sys.argv[1]), grace=1)
