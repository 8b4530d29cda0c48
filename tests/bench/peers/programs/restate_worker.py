"""The services that Restate is measured with, for the Python SDK: `hypercorn restate_worker:app`, in the peers' venv.

STEP_LOG and KEY_LOG are files that a line is added to for each step body and each wait.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import restate  # type: ignore[import-not-found]  # only in the peers' environment

_first: dict[str, float] = {}


def _opened(variable: str) -> int | None:
    path = os.environ.get(variable)
    return os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY) if path else None


_steps, _keys = _opened("STEP_LOG"), _opened("KEY_LOG")


def _note(file: int | None, text: str) -> None:
    if file is not None:
        os.write(file, f"{text}\n".encode())


async def step(key: str | None, place: int) -> dict[str, int]:
    """The body of every step."""
    _note(_steps, f"{key} {place}")
    return {"i": place}


async def chain(ctx: Any, given: dict[str, Any]) -> dict[str, Any]:
    """`k` steps, one after another; how long each took, in seconds."""
    took = []
    for place in range(given["k"]):
        began = time.perf_counter()
        await ctx.run_typed("s", step, restate.RunOptions(), given.get("key"), place)
        took.append(time.perf_counter() - began)
    return {"d": took}


async def sleeper(ctx: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Sleeps `s` seconds; how late it went on, from the first start of the body."""
    run = str(ctx.request().id)
    began = _first.setdefault(run, time.time())
    await ctx.sleep(timedelta(seconds=given["s"]))
    _first.pop(run, None)
    return {"late": time.time() - began - given["s"]}


async def waiter(ctx: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Waits for its awakeable, whose id it notes."""
    name, future = ctx.awakeable()
    _note(_keys, f"{given['key']} {name}")
    return {"got": await future}


async def child(ctx: Any, given: int) -> Any:
    """One step."""
    return await ctx.run_typed("s", step, restate.RunOptions(), None, given)


service = restate.Service("svc")
_child = service.handler()(child)


async def parent(ctx: Any, given: dict[str, Any]) -> int:
    """Calls `n` children together."""
    calls = [ctx.service_call(_child, place) for place in range(given["n"])]
    return len([await call for call in await restate.gather(*calls)])


for handler in (chain, sleeper, waiter, parent):
    service.handler()(handler)
# Suspends after a second instead of a minute, so that sleepers hold nothing.
lazy = restate.Service("lazy", inactivity_timeout=timedelta(seconds=1))
lazy.handler("sleeper")(sleeper)
app = restate.app(services=[service, lazy])
