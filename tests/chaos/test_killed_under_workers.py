"""`kill -9` of everything among many runs that a living worker executes: no step runs twice, nothing is an attempt."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runr_workflows import AsyncStep, Context, Workflows

from services.core.runtime.ids import ulid_uuid
from tests.support.rest import Rest
from tests.support.stack import SERVICES, Stack
from tests.support.waiting import until

RUNS = 120
STEPS = 20
CREDITS = 200


class Chains:
    """Runs of many short steps, executed by a worker in this process."""

    def __init__(self, wf: Workflows) -> None:
        self.ran: Counter[tuple[str, int]] = Counter()
        self.wf = wf

        @wf.workflow("chain", timeout="10m")
        async def chain(ctx: Context, step: AsyncStep) -> int:
            async def body(n: int) -> int:
                self.ran[ctx.run_id, n] += 1
                await asyncio.sleep(0.05)
                return n

            return sum([await step.run("add", body, n) for n in range(STEPS)])

    async def done(self, share: float) -> None:
        """This much of all steps has begun."""
        await until(lambda: self.ran.total() >= share * RUNS * STEPS, 120)

    @property
    def repeated(self) -> dict[tuple[str, int], int]:
        return {step: count for step, count in self.ran.items() if count > 1}


@asynccontextmanager
async def chains(stack: Stack, rest: Rest) -> AsyncIterator[Chains]:
    key = (await rest.ok("GET", "/projects/default/workflows/app/signing-key"))["signing_key"]
    tenant = await stack.value("select slug from rt.tenant order by id desc limit 1")
    made = Chains(Workflows(signing_key=key, signing_key_fallback=""))
    async with made.wf.connection(stack.executor_address, tenant=tenant, max_concurrency=CREDITS, drain_seconds=5):
        yield made


async def start_all(rest: Rest) -> list[str]:
    return list(await asyncio.gather(*(rest.start("chain") for _ in range(RUNS))))


async def test_w7_nothing_runs_twice_when_all_services_are_killed(stack: Stack) -> None:
    await stack.revive()
    async with stack.tenant() as rest, chains(stack, rest) as all_runs:
        runs = await start_all(rest)
        await all_runs.done(0.4)
        for service in SERVICES:
            await stack.kill(service)
        for service in SERVICES:
            await stack.start(service)
        ends = await asyncio.gather(*map(rest.completed, runs))
        assert ends == [sum(range(STEPS))] * RUNS
        assert all_runs.repeated == {}
        ids = [ulid_uuid(run) for run in runs]
        attempts = await stack.value("select count(*) from rt.attempts where run = any ($1)", ids)
    assert attempts == 0
