"""Many orders at once, placed by a client that does not give up, and the account of what became of each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.crew import Worker, crew
from tests.support.patient import PatientClient
from tests.support.rest import Json, Rest
from tests.support.workflow_app import Bodies, serving

STEPS = ("charge", "reserve", "notify")

_AT_ONCE = 24


def orders(wf: Workflows, bodies: Bodies) -> None:
    """The workflow: two steps, a sleep, a wait, a step."""

    @wf.workflow("order", triggers=[{"event": "order.placed"}], retries=5)
    def order(ctx: Context, step: Step) -> dict[str, Any]:
        n = ctx.event["data"]["n"]

        def body(name: str) -> str:
            bodies.record(ctx.run_id, name)
            return f"{name}-{n}"

        done = [step.run("charge", body, "charge"), step.run("reserve", body, "reserve")]
        step.sleep("hold", "200ms")
        shipped = step.wait_for_event("shipped", "order.shipped", match="data.n", lookback="run", timeout="1h")
        assert shipped is not None
        return {"done": [*done, step.run("notify", body, "notify")], "by": shipped["data"]["by"]}


class Orders:
    """`count` orders. Whoever places them tries again until they are acknowledged; `runs` are those that were."""

    def __init__(self, rest: Rest, bodies: Bodies, count: int, workers: Sequence[Worker] = ()) -> None:
        """`workers` execute the orders where they are served over the worker stream."""
        self.rest = rest
        self.workers = workers
        self.client = PatientClient(rest)
        self.bodies = bodies
        self.count = count
        self.runs: dict[int, str] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def place(self, *, over_s: float = 0.0) -> None:
        """Place all, spread over a time, and ship each as soon as it is placed."""
        async with asyncio.TaskGroup() as group:
            for n in range(self.count):
                group.create_task(self._place(n))
                await asyncio.sleep(over_s / self.count)

    async def _place(self, n: int) -> None:
        async with self._slots:
            placed = await self.client.insist(
                "POST", "/events", {"name": "order.placed", "id": f"o-{n}", "data": {"n": n}}
            )
            (self.runs[n],) = placed["events"][0]["runs"]
            shipped = {"name": "order.shipped", "id": f"s-{n}", "data": {"n": n, "by": "dhl"}}
            await self.client.insist("POST", "/events", shipped)

    async def begun(self, share: float, step: str = "reserve") -> None:
        """Wait until this share of the orders has begun a step."""
        await self.bodies.until(lambda done: sum(body.step == step for body in done) >= share * self.count)

    async def completed(self) -> list[Json]:
        """Wait for the end of every order; all must have completed with the right output, each step memoized once."""
        found = await asyncio.gather(*(self._end(run) for run in self.runs.values()))
        assert len(found) == self.count == len(set(self.runs.values()))
        for n, run in zip(self.runs, found, strict=True):
            assert run["status"] == "completed", run
            assert run["output"] == {"done": [f"{step}-{n}" for step in STEPS], "by": "dhl"}
            assert [step["id"] for step in run["steps"]] == ["charge", "reserve", "hold", "shipped", "notify"]
        assert {body.run for body in self.bodies.all} == set(self.runs.values())
        return list(found)

    async def _end(self, run: str) -> Json:
        while True:
            async with self._slots:
                result = await self.client.insist("GET", f"/runs/{run}/result?wait=10")
                if result["ended"]:
                    found: Json = await self.client.insist("GET", f"/runs/{run}")
                    return found

    @property
    def faults(self) -> Counter[str]:
        """What made the client ask again."""
        return self.client.faults

    @property
    def repeated(self) -> Counter[tuple[str, str]]:
        """(run, step) → executions of its body, of those that were executed more than once."""
        executions = Counter((body.run, body.step) for body in self.bodies.all)
        return Counter({each: times for each, times in executions.items() if times > 1})


class Sides:
    """The orders of several projects, placed side by side: what befalls one befalls all."""

    def __init__(self, sides: Sequence[Orders]) -> None:
        self.sides = sides

    async def place(self, *, over_s: float = 0.0) -> None:
        """See `Orders.place`."""
        async with asyncio.TaskGroup() as group:
            for side in self.sides:
                group.create_task(side.place(over_s=over_s))

    async def begun(self, share: float) -> None:
        """Wait until each side has begun this share of its orders."""
        await asyncio.gather(*(side.begun(share) for side in self.sides))

    async def completed(self) -> list[Json]:
        """See `Orders.completed`."""
        return list(chain.from_iterable(await asyncio.gather(*(side.completed() for side in self.sides))))

    @property
    def runs(self) -> list[str]:
        """The runs that were acknowledged."""
        return [run for side in self.sides for run in side.runs.values()]

    @property
    def faults(self) -> Counter[str]:
        """What made clients ask again."""
        return sum((side.faults for side in self.sides), Counter())

    @property
    def repeated(self) -> Counter[tuple[str, str]]:
        """See `Orders.repeated`."""
        return sum((side.repeated for side in self.sides), Counter())


@asynccontextmanager
async def ordering(rest: Rest, count: int) -> AsyncIterator[Orders]:
    """Orders of the client's project; over the worker stream, by two workers in processes of their own."""
    if rest.transport == "http":
        async with serving(rest, orders) as bodies:
            yield Orders(rest, bodies, count)
    else:
        async with crew(rest, f"{__name__}:{orders.__name__}", [rest.worker_urls[0]] * 2) as made:
            yield Orders(rest, made.bodies, count, made.workers)
