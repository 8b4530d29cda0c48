"""Clocks that are wrong: the processes' against the database's, and the latter when it is set (rulings C19, C21)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial

import pytest
from runr_workflows import Context, Step, Workflows

from services.core.runtime.ids import ulid_uuid
from services.core.store.database import Database
from tests.support import invariants
from tests.support.patient import PatientClient
from tests.support.postgres import run_apart
from tests.support.rest import Json, Rest, step_of
from tests.support.stack import Servers, Stack
from tests.support.still_clock import StillClock
from tests.support.workflow_app import Bodies, serving

SHORT = {"WORKFLOWS_LEASE_TTL": "6s", "WORKFLOWS_HEARTBEAT": "200ms"}
# 2.6 s: a rescue that believes the clock gives owners three beats and a second before it buries them, and looks each
# half second.
BEATS = 13
HOUR_MS = 3_600_000
AHEAD = pytest.mark.parametrize("ahead_ms", [-60_000, -4_000, 4_000, 60_000])


@pytest.fixture(scope="module")
def stack(servers: Servers) -> Iterator[Stack]:
    """Two executors."""
    made = Stack(servers, settings=SHORT, replicas={"executor": 2})
    run_apart(made.__aenter__())
    try:
        run_apart(take_over_the_clock(made))
        yield made
        run_apart(invariants.check(made.database_url))
    finally:
        run_apart(made.close())


async def take_over_the_clock(stack: Stack) -> None:
    async with opened(stack) as database:
        await StillClock.install(database)


@asynccontextmanager
async def opened(stack: Stack) -> AsyncIterator[Database]:
    database = Database(stack.database_url, name="clock", size=1)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


@pytest.fixture
async def clock(stack: Stack) -> AsyncIterator[StillClock]:
    """The clock of their database, which is right before each test, and after it."""
    async with opened(stack) as database:
        taken = StillClock(database)
        await taken.run_from(datetime.now(UTC).isoformat())
        yield taken
        await taken.run_from(datetime.now(UTC).isoformat())


def working(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("held", retries=3)
    def held(ctx: Context, step: Step) -> None:
        step.run("work", bodies.record, ctx.run_id, "work")

    @wf.workflow("looks-back", retries=0)
    def looks_back(ctx: Context, step: Step) -> str | None:
        step.run("work", bodies.record, ctx.run_id, "work")
        found = step.wait_for_event("w", "paid", lookback="run", timeout="20s")
        return None if found is None else str(found["data"]["of"])

    @wf.workflow("sleeps", retries=0)
    def sleeps(ctx: Context, step: Step) -> None:
        step.run("work", bodies.record, ctx.run_id, "work")
        step.sleep_until("z", ctx.event["data"]["until"])
        step.run("awake", bodies.record, ctx.run_id, "awake")


async def now_ms(stack: Stack) -> int:
    """What the database's clock shows."""
    shown: int = await stack.value("select rt.ms(rt.now())")
    return shown


async def start(rest: Rest, workflow: str, data: Json | None = None) -> str:
    """Start a run; once more where the gateway has not heard yet that the clock was set. Its id."""
    path = f"/projects/{rest.project}/workflows/{workflow}/runs"
    return str((await PatientClient(rest).insist("POST", path, {"data": data or {}}))["id"])


async def again(stack: Stack, name: str) -> None:
    """Kill it and start it again."""
    await stack.kill(name)
    await stack.start(name)


async def watched(rest: Rest, stack: Stack) -> None:
    """Return when the scheduler has beaten so often that its rescue has looked, and has acted if it would."""
    count = partial(stack.value, "select max(beats) from rt.owner where kind = 'scheduler' and not dead")
    before = await count()
    await rest.until(count, lambda beats: beats >= before + BEATS)


@AHEAD
async def test_c21_processes_whose_clocks_are_off_lose_no_event_and_wake_nobody_early(
    stack: Stack, clock: StillClock, ahead_ms: int
) -> None:
    await clock.step(ahead_ms)
    # They come to a database whose clock is not theirs.
    await asyncio.gather(*(again(stack, name) for name in ("ingest", "executor", "executor-2")))
    async with stack.tenant() as rest, serving(rest, working) as bodies:
        bodies.hold("work")
        looking = await start(rest, "looks-back")
        until_ms = await now_ms(stack) + 4_000
        until = datetime.fromtimestamp(until_ms / 1_000, UTC)
        sleeping = await start(rest, "sleeps", {"until": until.isoformat()})
        await bodies.reached(looking, "work")
        await rest.send("paid", {"of": "before the wait"})
        bodies.let_go("work")
        assert await rest.completed(looking) == "before the wait"
        await rest.completed(sleeping)
        woke_ms = await stack.value("select rt.ms(t1) from rt.steps where sid = 'z' and run = $1", ulid_uuid(sleeping))
        assert 0 <= woke_ms - until_ms < 2_000


async def test_c19_c21_no_step_of_the_databases_clock_takes_runs_from_the_living_or_leaves_them_with_the_dead(
    stack: Stack, clock: StillClock
) -> None:
    async with stack.tenant() as rest, serving(rest, working) as bodies:
        bodies.hold("work")
        runs = [await start(rest, "held") for _ in range(8)]
        for run in runs:
            await bodies.reached(run, "work")
        for step_ms in (HOUR_MS, -2 * HOUR_MS, HOUR_MS, -2 * HOUR_MS):
            await clock.step(step_ms)
            await watched(rest, stack)
        for run in runs:
            assert bodies.of(run) == {"work": 1}
        # Whose beats are from the future now, dies all the same; and so does who only stands still.
        await stack.kill("executor")
        stack.children["executor-2"].freeze()
        await stack.start("executor")
        for run in runs:
            await bodies.reached(run, "work", times=2)
        bodies.let_go("work")
        for run in runs:
            await rest.completed(run)
            found = await rest.run(run)
            assert [each["error"]["name"] for each in found["attempts"]] == ["WorkerLost"]
            assert step_of(found, "work")["status"] == "completed"
        stack.children["executor-2"].thaw()
