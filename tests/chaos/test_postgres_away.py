"""Without Postgres nothing is acknowledged; when it is back, everything resumes by itself."""

from __future__ import annotations

import asyncio
import contextlib
import os

import asyncpg
import pytest

from tests.support.orders import Orders, Sides
from tests.support.stack import Servers, Stack
from tests.support.waiting import until

AWAY_S = 10.0


async def test_orders_resume_after_postgres_was_away(servers: Servers, stack: Stack, sides: Sides) -> None:
    placing = asyncio.create_task(sides.place(over_s=4))
    await sides.begun(0.2)
    await servers.stop_postgres()
    acknowledged = len(sides.runs)
    await asyncio.sleep(AWAY_S)
    # An answer to each may have been on its way when it went; none was given since.
    assert len(sides.runs) <= acknowledged + len(sides.sides)
    await servers.start_postgres()
    await placing
    runs = await sides.completed()
    await stack.ready()
    assert all(side.faults["503"] > 0 for side in sides.sides)
    # It was away for less than a lease: whoever held a run still does, and no body ran again.
    assert not sides.repeated
    assert all(run["attempts"] == [] for run in runs)


async def test_orders_resume_after_postgres_has_crashed(servers: Servers, stack: Stack, sides: Sides) -> None:
    placing = asyncio.create_task(sides.place(over_s=2))
    await sides.begun(0.3)
    await servers.crash_postgres()
    await placing
    runs = await sides.completed()
    await stack.ready()
    assert not sides.repeated
    assert all(run["attempts"] == [] for run in runs)


async def backend_of_ingest(stack: Stack) -> int:
    """A server process that serves ingest, as soon as there is one: the server may be recovering from the last one."""

    async def backend() -> int | None:
        with contextlib.suppress(asyncpg.PostgresError, OSError):
            pid = await stack.value("select pid from pg_stat_activity where application_name = $1", "runr-ingest")
            return None if pid is None else int(pid)
        return None

    return int(await until(backend, 60))


@pytest.mark.parametrize("accident", ["sessions-cut", "backend-killed"])
async def test_lost_sessions_cost_nobody_a_lease(stack: Stack, orders: Orders, accident: str) -> None:
    """The server lives on and its sessions are gone: all of the stack's, or every one after a backend has died."""
    placing = asyncio.create_task(orders.place(over_s=3))
    for share in (0.2, 0.5, 0.8):
        await orders.begun(share)
        if accident == "sessions-cut":
            await stack.value(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        else:
            os.kill(await backend_of_ingest(stack), 9)
    await placing
    runs = await orders.completed()
    await stack.ready()
    assert not orders.repeated
    assert all(run["attempts"] == [] for run in runs)
