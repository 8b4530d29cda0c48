"""An executor that is frozen (SIGSTOP, a paused machine, a cut network) while the answer to its claim comes (C11)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from services.core.domain.op import StepCompleted
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

CLAIMS = """
import asyncio, os, signal, sys
from uuid import UUID
from services.core.store.database import connect
from services.core.store.queries import tenant_query
from services.executor.claim import whole_bytes

dsn, owner, tenant, *runs = sys.argv[1:]

async def main():
    connection = await connect(dsn, "frozen")
    statement = await connection.prepare(tenant_query("executor", "claim_and_load", int(tenant)))
    claiming = asyncio.ensure_future(
        statement.fetch(int(owner), [UUID(run) for run in runs], 256, int(tenant), whole_bytes(len(runs))))
    for _ in range(3):
        await asyncio.sleep(0)  # it is sent
    os.kill(os.getpid(), signal.SIGSTOP)
    await claiming

asyncio.run(main())
"""


@pytest.mark.parametrize("size", [7_000, 250_000], ids=["as much as is read with claims", "more"])
async def test_c11_a_claimer_that_is_frozen_in_the_middle_holds_no_locks(hand: Hand, rows: LiveRows, size: int) -> None:
    await hand.declare({"name": "work"})
    runs = []
    for _ in range(32):
        run = await hand.start("work")
        await hand.answer(run, StepCompleted(id="a", name="a", output=f'"{"x" * size}"'))
        lease = await hand.hold(run)
        assert lease is not None
        await hand.let_go(lease)
        runs.append(run)
    owner = await rows.owner()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLAIMS, hand.database.dsn, str(owner), str(hand.tenant), *map(str, runs)
    )
    try:
        await until(lambda: _is_stopped(child.pid))

        async def free() -> bool:
            claimed = "select from rt.live where id = any ($1) and owner = $2 for update skip locked"
            return len(await rows.rows(claimed, runs, owner)) == len(runs)

        await until(free)
    finally:
        os.kill(child.pid, signal.SIGCONT)
        child.kill()
        await child.wait()


async def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "T"
