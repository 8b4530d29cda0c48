"""Two replicas of every service in a storm: whatever dies when, every run completes and nothing happens twice.

Two tenants have the same workflows, each over a transport that is drawn: called over HTTP, or executed by two workers
that connect to any executor and are struck too.

`make soak` plays it with RUNR_SOAK_RUNS (1,000) runs, with the accidents of RUNR_SOAK_SEED or of the time of day; a
failure prints the seed. Seeds give the same accidents, not the same meetings.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from services.core.runtime.ids import ulid_uuid
from tests.support import invariants
from tests.support.balancer import balanced
from tests.support.crew import Worker, crew
from tests.support.mixed_app import ACCOUNTS, KEY_LIMIT, KINDS, WORKFLOW_LIMITS, MixedApp, register_remote
from tests.support.patient import PatientClient
from tests.support.rest import Rest
from tests.support.stack import SERVICES, Servers, Stack
from tests.support.storm import storming
from tests.support.transports import TRANSPORTS, Transport
from tests.support.waiting import until
from tests.support.workflow_app import Bodies, serving

SOAKS = "RUNR_SOAK_RUNS" in os.environ
RUNS = int(os.environ.get("RUNR_SOAK_RUNS", "40"))
TENANTS = 2
SEED = int(os.environ.get("RUNR_SOAK_SEED") or (time.time() if SOAKS else 1))
BOUND_S = 90 + 0.6 * RUNS

# So many runs are started at once, then comes a pause: limits are reached, and there is always something to kill.
BURST = 20
PAUSE_S = 2.5
SHIPPED_AFTER_S = 3.0

# A process that has been told to stop in the middle of a body may have to leave it to another.
MEANT = "the drain did not end in time"

_WORKFLOWS = """select w.name, count(*), count(*) filter (where e.status = 'completed') as completed
                from rt.runs r join rt.workflows w on w.id = r.wf left join rt.ends e on e.run = r.id
                where r.tenant = $1 group by w.name"""
_LOST = """select run, sid, count(*) from rt.attempts
           where tenant = $1 and (sid is not null or error::json ->> 'name' in ('WorkerLost', 'WorkerDisconnected'))
           group by run, sid"""
_RESUMED = """select count(*), count(distinct s.event), count(distinct s.run) from rt.steps s
                where s.tenant = $1 and s.event is not null"""
_TICKS = """select (r.event_data::json ->> 'scheduled_at')::timestamptz as at from rt.runs r
              join rt.cron_fire f on f.run = r.id where r.tenant = $1 order by at"""
_BEFORE_NOW = "update rt.cron set next_at = next_at - interval '1 minute' where last_at is null returning next_at"
_LIVE = "select count(*) from rt.live where tenant = (select id from rt.tenant where slug = $1)"


class Mixture:
    """The runs that a patient client of both gateways starts, and what must have become of them."""

    def __init__(self, stack: Stack, side: Side) -> None:
        self.runs: dict[int, str] = {}
        self._stack = stack
        self._chance = random.Random(f"{SEED} {side.number}")
        self._tenant = side.rests[0].tenant
        self._client = side.client

    async def play(self) -> None:
        """Start all and wait for all."""
        await self._start_all()
        await self._completed_all()

    async def _start_all(self) -> None:
        """Start all, each by a request that may be made again; send each waiter its event."""
        async with asyncio.TaskGroup() as group:
            for n in range(RUNS // TENANTS):
                if n and n % BURST == 0:
                    await asyncio.sleep(PAUSE_S)
                group.create_task(self._start(n, KINDS[n % len(KINDS)]))

    async def _start(self, n: int, kind: str) -> None:
        data = {"n": n, "account": n // len(KINDS) % ACCOUNTS}
        if kind != "waiter":
            body = {"data": data, "idempotency_key": f"run-{n}"}
            started = await self._client.insist("POST", f"/projects/default/workflows/{kind}/runs", body)
            self.runs[n] = started["id"]
            return
        placed = await self._client.insist("POST", "/events", {"name": "mixed.placed", "id": f"p-{n}", "data": data})
        (self.runs[n],) = placed["events"][0]["runs"]
        await asyncio.sleep(self._chance.uniform(0, SHIPPED_AFTER_S))
        await self._client.insist("POST", "/events", {"name": "mixed.shipped", "id": f"s-{n}", "data": data})

    async def _completed_all(self) -> None:
        """Wait for the end of all, each with its own output."""
        async with asyncio.TaskGroup() as group:
            for n, run in self.runs.items():
                group.create_task(self._completed(n, run))

    async def _completed(self, n: int, run: str) -> None:
        while not (result := await self._client.insist("GET", f"/runs/{run}/result?wait=10"))["ended"]:
            pass
        assert (result["status"], result["output"]) == ("completed", n), result

    async def quiet(self) -> None:
        """No tick comes any more, and nothing is active: also what others have started has ended."""
        await self._client.insist("PATCH", "/projects/default/schedules/minutely/0", {"is_active": False})
        await until(self._nothing_lives, 60)

    async def _nothing_lives(self) -> bool:
        return not await self._stack.value(_LIVE, self._tenant)


@pytest.fixture
async def stack(servers: Servers) -> AsyncIterator[Stack]:
    """Two of everything."""
    async with Stack(servers, replicas=dict.fromkeys(SERVICES, 2)) as made:
        yield made


@dataclass(frozen=True)
class Side:
    """A tenant with its app: clients of both gateways, and what is counted. Over HTTP it has no `workers`."""

    number: int
    rests: tuple[Rest, Rest]
    app: MixedApp
    bodies: Bodies
    workers: Sequence[Worker]
    client: PatientClient


@asynccontextmanager
async def serving_side(stack: Stack, number: int, transport: Transport) -> AsyncIterator[Side]:
    """A new tenant whose app is served over this transport."""
    app = MixedApp(stack.database_url)
    async with (
        stack.tenant(transport) as first,
        Rest(stack.api_urls[1], first.token) as second,
        balanced(stack.executor_addresses, random.Random(f"{SEED} {number}")) as executors,
    ):
        rests = (first, second)
        if transport == "http":
            async with serving(first, app.register) as bodies:
                yield Side(number, rests, app, bodies, (), PatientClient(*rests))
        else:
            counted = Bodies()
            name = f"{register_remote.__module__}:{register_remote.__name__}"
            work = partial(app.work, counted)
            async with crew(first, name, [executors] * 2, bodies=counted, work=work) as made:
                yield Side(number, rests, app, counted, made.workers, PatientClient(*rests))


async def test_every_run_completes_in_a_storm_of_accidents(stack: Stack) -> None:
    transports = random.Random(f"{SEED} transports").choices(TRANSPORTS, k=TENANTS)
    print(f"RUNR_SOAK_SEED={SEED} RUNR_SOAK_RUNS={RUNS}", *transports)
    async with AsyncExitStack() as serve:
        sides = [
            await serve.enter_async_context(serving_side(stack, number, transport))
            for number, transport in enumerate(transports)
        ]
        # Nobody waits up to a minute for the first tick.
        assert await stack.value(_BEFORE_NOW) is not None
        mixtures = [Mixture(stack, side) for side in sides]
        began = time.monotonic()
        async with (
            asyncio.timeout(BOUND_S),
            storming(stack, SEED, [side.workers for side in sides if side.workers]) as storm,
        ):
            await asyncio.gather(*(mixture.play() for mixture in mixtures))
        await asyncio.gather(*(mixture.quiet() for mixture in mixtures))
        print(f"{time.monotonic() - began:.0f} s,", storm.accidents)
        print(*((side.client.faults, side.app.gates.most) for side in sides))
        await invariants.check(stack.database_url, accepted=[run for each in mixtures for run in each.runs.values()])
        for side in sides:
            await judge(stack, side)
    assert [fault for fault in stack.faults() if fault["message"] != MEANT] == []


async def judge(stack: Stack, side: Side) -> None:
    """Everything that was counted by somebody, held against what was stored."""
    connection = await asyncpg.connect(stack.database_url)
    try:
        tenant = await connection.fetchval("select id from rt.tenant where slug = $1", side.rests[0].tenant)
        runs = {row["name"]: row for row in await connection.fetch(_WORKFLOWS, tenant)}
        lost = {(row["run"], row["sid"]): row["count"] for row in await connection.fetch(_LOST, tenant)}
        resumed = tuple(await connection.fetchrow(_RESUMED, tenant))
        ticks = [row["at"] for row in await connection.fetch(_TICKS, tenant)]
    finally:
        await connection.close()
    each = RUNS // TENANTS // len(KINDS)
    assert each * len(KINDS) * TENANTS == RUNS
    assert {name: row["completed"] for name, row in runs.items()} == {name: row["count"] for name, row in runs.items()}
    assert {name: row["count"] for name, row in runs.items()} == {
        **dict.fromkeys([*KINDS, "child", "listener"], each),
        "minutely": len(ticks),
    }
    gates = side.app.gates
    assert gates.faults == []
    # The limits were reached, or else nothing was tested.
    assert gates.most["narrow"] == WORKFLOW_LIMITS["narrow"]
    assert max(gates.most[f"keyed by {account}"] for account in range(ACCOUNTS)) == KEY_LIMIT
    assert resumed == (each, each, each), "each wait was resumed by its event, once"
    assert ticks == [ticks[0] + timedelta(minutes=nth) for nth in range(len(ticks))], "each minute once"
    check_bodies(side.bodies, lost)


def check_bodies(bodies: Bodies, lost: dict[tuple[Any, str | None], int]) -> None:
    """A body ran again only because it had failed or its process had gone, and the run knows of each time."""
    executions = Counter((body.run, body.step) for body in bodies.all)
    for (run, step), times in executions.items():
        known = lost.get((ulid_uuid(run), step), 0) + lost.get((ulid_uuid(run), None), 0)
        assert times <= 1 + known, f"{step} of {run} ran {times} times, {known} attempts are known"
