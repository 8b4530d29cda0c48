"""The function and the API tell the same time of a run's first lease, to the millisecond."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import pytest

from services.core.engine.definitions import DefinitionsCache
from services.core.store.queries import queries
from services.core.store.runs import RunReader
from services.executor.load import load_leases
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows


@pytest.mark.parametrize("microseconds", [0, 499, 500, 501, 999, 1_500, 999_999])
async def test_started_at_is_rounded_alike(hand: Hand, rows: LiveRows, microseconds: int) -> None:
    run = await hand.start("work")
    async with rows.database.connection() as connection:
        await connection.fetch(queries("executor")["claim_hinted"], secrets.randbits(63), [run], 1)
        started = datetime(2026, 10, 10, 10, 0, 0, microseconds, tzinfo=UTC)
        await connection.execute("update rt.live set started = $2 where id = $1", run, started)
        claimed = await connection.fetch("select * from rt.live where id = $1", run)
        (lease,) = await load_leases(connection, DefinitionsCache(None), claimed)
    assert lease.started_ms == (await RunReader(rows.database).one(rows.tenant, run)).started_ms
