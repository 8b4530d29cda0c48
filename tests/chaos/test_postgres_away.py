"""Without Postgres nothing is acknowledged; when it is back, everything resumes by itself."""

from __future__ import annotations

import asyncio

from tests.support.orders import Orders
from tests.support.stack import Servers, Stack

AWAY_S = 10.0


async def test_orders_resume_after_postgres_was_away(servers: Servers, stack: Stack, orders: Orders) -> None:
    placing = asyncio.create_task(orders.place(over_s=4))
    await orders.begun(0.2)
    await servers.stop_postgres()
    acknowledged = len(orders.runs)
    await asyncio.sleep(AWAY_S)
    # An answer may have been on its way when it went; none was given since.
    assert len(orders.runs) <= acknowledged + 1
    await servers.start_postgres()
    await placing
    runs = await orders.completed()
    await stack.ready()
    assert orders.faults["503"] > 0
    # It was away for less than a lease: whoever held a run still does, and no body ran again.
    assert not orders.repeated
    assert all(run["attempts"] == [] for run in runs)


async def test_orders_resume_after_postgres_has_crashed(servers: Servers, stack: Stack, orders: Orders) -> None:
    placing = asyncio.create_task(orders.place(over_s=2))
    await orders.begun(0.3)
    await servers.crash_postgres()
    await placing
    runs = await orders.completed()
    await stack.ready()
    assert not orders.repeated
    assert all(run["attempts"] == [] for run in runs)
