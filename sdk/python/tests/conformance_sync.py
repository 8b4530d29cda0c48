"""The workflows that `runr conformance` drives, as `def`s of the Python SDK.

`python -m sdk.python.tests.conformance_sync PORT` serves them.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any

from runr_workflows import Context, Step, StepError, Workflows
from sdk.python.tests.conformance_bodies import CHECKPOINT, ConformanceError, fail, kind_arguments, made, seen

wf = Workflows()


@wf.workflow("conformance-replay", checkpoint=CHECKPOINT)
def replay(ctx: Context, step: Step) -> dict[str, Any]:
    data = ctx.event["data"]
    executed: list[str] = []

    def body(name: str) -> dict[str, Any]:
        executed.append(name)
        time.sleep(data.get("pause_ms", 0) / 1000)
        return {"step": name, "executed": list(executed), "attempt": ctx.attempt, "tag": data.get("tag")}

    first = step.run("first", body, "first")
    second = step.run("second", body, "second")
    return {"first": first, "second": second, "executed": executed}


@wf.workflow("conformance-ids")
def ids(ctx: Context, step: Step) -> list[int]:
    return [step.run(step_id, int, n) for n, step_id in enumerate(ctx.event["data"]["ids"])]


@wf.workflow("conformance-errors")
def errors(ctx: Context, step: Step) -> Any:
    data = ctx.event["data"]
    if data["where"] == "workflow":
        fail(data)
    try:
        return step.run("risky", fail, data)
    except StepError as error:
        if not data["catch"]:
            raise
        step.run("compensate", seen, error)
        return seen(error)


@wf.workflow("conformance-kinds")
def kinds(ctx: Context, step: Step) -> dict[str, Any]:
    method, arguments, options = kind_arguments(ctx.event["data"])
    try:
        return {"result": getattr(step, method)("it", *arguments, **options)}
    except StepError as error:
        return {"error": seen(error)}


@wf.workflow("conformance-values")
def values(ctx: Context, step: Step) -> Any:
    data = ctx.event["data"]
    if data.get("where") == "workflow":
        return made(data)
    return {"value": step.run("value", made, data)}


@wf.workflow("conformance-swallow")
def swallow(ctx: Context, step: Step) -> str:
    then = ctx.event["data"]["then"]
    with suppress(BaseException):  # the rule is about code that catches all it can
        step.run("first", int)
    if then == "raise":
        raise ConformanceError("after the swallowing")
    if then == "step":
        with suppress(BaseException):
            step.run("second", int)
    return "swallowed"


@wf.workflow("conformance-nested")
def nested(ctx: Context, step: Step) -> Any:
    return step.run("outer", lambda: step.run("inner", int))


if __name__ == "__main__":
    wf.serve("127.0.0.1", int(sys.argv[1]), grace=1)
