"""The layout of `deploy/`: two replicas of each service, one after another replaced under load.

Each process has the command and the drain that the manifests give it, one is killed (`kill -9`), then all are restarted
in a row, each when the one before is ready. No event is lost, no run fails, and a client that asks again for a while
sees none of it.

`make test` plays it once and in short. `make rolling` plays it over and over for RUNR_ROLLING_SECONDS (60) with
RUNR_ROLLING_RATE (200) requests a second and prints the figures of docs/operations.md.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest
from runr_workflows import Context, Step, Workflows

from services.core.runtime.python_child import python_command
from services.core.runtime.service import EXIT_OK
from tests.support import invariants
from tests.support.balancer import balanced
from tests.support.homes import temporary_home
from tests.support.manifests import compose
from tests.support.rest import Rest
from tests.support.rolling import SteadyLoad
from tests.support.stack import SERVICES, Servers, Stack
from tests.support.waiting import until
from tests.support.workflow_app import Bodies, serving

IN_FULL = "RUNR_ROLLING_SECONDS" in os.environ
SECONDS = float(os.environ.get("RUNR_ROLLING_SECONDS", "0"))
RATE = float(os.environ.get("RUNR_ROLLING_RATE", "200" if IN_FULL else "40"))
RETRY_WINDOW_S = 10.0 if IN_FULL else 60.0
BOUND_S = 240.0
REPLICAS = 2
# Each round has another one.
KILLED = ("executor-2", "ingest-2", "gateway-2", "scheduler-2")
GRPC_SERVICES = ("ingest", "scheduler", "executor")
_ACTIVE = "select count(*) from rt.runs r where not exists (select from rt.ends e where e.run = r.id)"
# What the manifests give a process, shorter: nobody waits for a balancer here that looks every two seconds.
DRAIN = {"RUNR_GRACE": "20s", "RUNR_DRAIN_DELAY": "1s" if IN_FULL else "200ms", "WORKFLOWS_LEASE_TTL": "30s"}


def register(workflows: Workflows, bodies: Bodies) -> None:
    """A run that is started by hand, and one that an event starts; both have a step."""

    def work(ctx: Context, name: str) -> int:
        bodies.record(ctx.run_id, name)
        return int(ctx.event["data"]["n"])

    @workflows.workflow("rolled")
    def rolled(ctx: Context, step: Step) -> int:
        return step.run("work", work, ctx, "work")

    @workflows.workflow("heard", triggers=[{"event": "rolling.heard"}])
    def heard(ctx: Context, step: Step) -> int:
        return step.run("hear", work, ctx, "hear")


def command(service: str) -> list[str]:
    """What the image runs for a service."""
    return [*python_command("services.cli.main"), *compose()["services"][service]["command"]]


@pytest.fixture
async def stack(servers: Servers) -> AsyncIterator[Stack]:
    """Two of everything; a gateway finds both replicas of a service behind one address."""
    async with AsyncExitStack() as opened:
        ports = opened.enter_context(temporary_home("rolling"))
        names = {service: [service, f"{service}-2"] for service in SERVICES}
        listens = {name: f"127.0.0.1:{ports.port(name)}" for each in names.values() for name in each}
        fronts = {
            f"RUNR_{service.upper()}_ADDR": await opened.enter_async_context(
                balanced([listens[name] for name in names[service]], random.Random(service))
            )
            for service in GRPC_SERVICES
        }
        own = {name: {**fronts, "RUNR_GRPC_ADDR": listens[name]} for each in GRPC_SERVICES for name in names[each]}
        made = Stack(
            servers,
            settings=DRAIN,
            replicas=dict.fromkeys(SERVICES, REPLICAS),
            own={**own, **dict.fromkeys(names["gateway"], fronts)},
            commands={name: command(service) for service, each in names.items() for name in each},
        )
        yield await opened.enter_async_context(made)


async def test_a_rolling_restart_under_load_costs_nothing(stack: Stack) -> None:
    async with (
        asyncio.timeout(BOUND_S + SECONDS),
        stack.tenant() as first,
        Rest(stack.api_urls[1], first.token, tenant=first.tenant) as second,
        serving(first, register) as bodies,
    ):
        load = SteadyLoad([first, second], rate=RATE, window_s=RETRY_WINDOW_S)
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            began = time.monotonic()
            rounds = 0
            try:
                while rounds == 0 or time.monotonic() - began < SECONDS:
                    await replace_all(stack, kills=KILLED[rounds % len(KILLED)])
                    rounds += 1
            finally:
                load.end()
        took_s = time.monotonic() - began
        tally = load.tally
        print(
            f"\n{tally.requests} requests in {took_s:.0f} s, all replaced {rounds} times;"
            f" {tally.repeated} were asked again: {dict(tally.asked_again)}"
            f"\nanswered within {tally.slowest_s(0.5):.3f} s (half), {tally.slowest_s(0.99):.3f} s (99 of 100),"
            f" {tally.slowest_s(1):.3f} s (all); {len(load.started)} runs, {len(load.heard)} events"
        )
        assert tally.late == []
        await all_completed(stack, first, load)
        assert {(body.run, body.step) for body in bodies.all} == {
            *((run, "work") for run in load.started.values()),
            *((run, "hear") for run in load.heard.values()),
        }
    assert stack.faults() == []


async def replace_all(stack: Stack, *, kills: str) -> None:
    """One is killed and comes back; then each ends in order and starts again, one after another."""
    await stack.kill(kills)
    stack.children[kills].start()
    await stack.children[kills].ready()
    for service in SERVICES:
        for name in stack.names(service):
            child = stack.children[name]
            child.kill(signal.SIGTERM)
            assert await child.ended() == EXIT_OK, child.log_tail()
            child.start()
            await child.ready()


async def all_completed(stack: Stack, rest: Rest, load: SteadyLoad) -> None:
    """Each start is one run and each event is there once, every run has completed, and no invariant is broken."""
    runs = [*load.started.values(), *load.heard.values()]
    for run in runs[-5:]:
        await rest.completed(run)
    connection = await asyncpg.connect(stack.database_url)

    async def none_is_active() -> bool:
        return not await connection.fetchval(_ACTIVE)

    try:
        await until(none_is_active, 60)
        ended = await connection.fetch("select status, count(*) from rt.ends group by status")
        events = await connection.fetchval("select count(*) from rt.events where name = 'rolling.heard'")
    finally:
        await connection.close()
    assert len(set(runs)) == len(runs)
    assert events == len(load.heard)
    assert {row["status"]: row["count"] for row in ended} == {"completed": len(runs)}
    await invariants.check(stack.database_url, accepted=runs)
