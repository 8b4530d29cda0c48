"""Waits until the engine rests, and drives an episode to its end."""

from __future__ import annotations

import asyncio
import time

from services.core.domain.errors import Unavailable
from tests.model.draw import CLOCKWORK
from tests.model.ledger import Ledger
from tests.model.machine import PROJECT, Machine

_GUARD_S = 15.0  # without any change
_LOOK_S = 0.01
_STILL_LOOKS = 10
_SKIP_S = 0.2
_MOST_IDLE_ROUNDS = 5
_MOST_SWEEPS = 4
_LEAST_STEP_MS = 2_100  # over what the sweeps leave to others: marks a second, silent owners two

_BUSY = """
select count(*) filter (where st = 'q'), count(*) filter (where owner = any ($1)), sum(rev), sum(epoch), count(*)
from rt.live
"""
_OVERDUE = "select exists (select from rt.mark) or exists (select from rt.wait where arming)"
_STATE = """
select count(*), (select count(*) from rt.mark), sum(rev), sum(epoch), count(*) filter (where st = 'b') from rt.live
"""
_NEXT = "select ceil(extract(epoch from min(due_at) - rt.now()) * 1000) from rt.wait"


async def settle(machine: Machine) -> None:
    """Wait until no run goes on by itself: all rest, or are in a slow body, or wait for a hint or a scheduler."""
    await _until_still(machine, machine.functions.waiting)


async def drive_to_the_end(machine: Machine, ledger: Ledger) -> None:
    """Let everything come to its end: nothing is held up any more, schedulers work, and time passes."""
    machine.wire.fair()
    machine.functions.open = True
    machine.functions.let_go()
    for executor in machine.executors:
        executor.disarm()
        await executor.die(only_dying=True)
    for tenant in machine.tenants:
        for workflow in machine.plan.workflows:
            await machine.ingest.declarer.set_active(tenant, PROJECT, workflow.name, workflow.name != CLOCKWORK)
    idle, before, guard = 0, None, time.monotonic() + _GUARD_S
    while idle <= _MOST_IDLE_ROUNDS and time.monotonic() < guard:
        await tick_all(machine)
        await _until_still(machine)
        await _until_known(machine, guard)
        await look_at_ends(machine, ledger)
        async with machine.database.connection() as connection:
            state = tuple(await connection.fetchrow(_STATE))
            next_ms = await connection.fetchval(_NEXT)
        if state[0] == state[1] == 0:
            return
        idle = idle + 1 if next_ms is None and state == before else 0
        if state != before:
            before, guard = state, time.monotonic() + _GUARD_S
        await let_pass(machine, max(_LEAST_STEP_MS, int(next_ms or 0) + 1))
    await _stuck(machine, ledger)


async def let_pass(machine: Machine, ms: int) -> None:
    """Time passes; not more than some seconds of it while schedulers have not done what they do within seconds."""
    for _ in range(_MOST_SWEEPS):
        async with machine.database.connection() as connection:
            if ms <= _LEAST_STEP_MS or not await connection.fetchval(_OVERDUE):
                break
        await machine.time.move(_LEAST_STEP_MS, machine.living)
        ms -= _LEAST_STEP_MS
        await tick_all(machine)
    await machine.time.move(ms, machine.living)


async def tick_all(machine: Machine) -> None:
    """All schedulers at once."""
    await asyncio.gather(*(scheduler.tick() for scheduler in machine.schedulers))


async def look_at_ends(machine: Machine, ledger: Ledger) -> None:
    """An end once seen stays as it is; a retry takes it out of the ledger first."""
    query = "select run, status, output, error, ended, epoch, rev from rt.ends"
    try:
        async with machine.database.connection() as connection:
            rows = await connection.fetch(query)
    except Unavailable:
        return
    for row in rows:
        end = tuple(row)[1:]
        before = ledger.ends.setdefault(row["run"], end)
        if before != end and ledger.retries[row["run"]] == 0:
            ledger.faults.append(f"the end of run {row['run']} was {before} and is now {end}")
        ledger.ends[row["run"]] = end
    found = {row["run"] for row in rows}
    gone = [run for run in ledger.ends if run not in found and ledger.retries[run] == 0]
    ledger.faults += [f"the end of run {run} is gone" for run in gone]


async def _until_still(machine: Machine, slow: int = 0) -> None:
    """Until no run is queued and no more than `slow` are leased by the living, or nothing has moved for some looks.

    It is looked at twice: a slot goes from one run to the next in two transactions.
    """
    before, still, rest = None, 0, 0
    while still < _STILL_LOOKS and rest < 2:
        async with machine.database.connection() as connection:
            state = tuple(await connection.fetchrow(_BUSY, machine.living))
        rest = rest + 1 if state[0] == 0 and state[1] <= slow else 0
        still = still + 1 if state == before else 0
        before = state
        if any(executor.is_dying for executor in machine.executors):
            return
        await asyncio.sleep(_LOOK_S)


async def _until_known(machine: Machine, guard: float) -> None:
    """Until executors have let go of what they hold and do not know: claims whose answer was lost."""
    while time.monotonic() < guard:
        async with machine.database.connection() as connection:
            rows = await connection.fetch("select id, owner from rt.live where owner = any ($1)", machine.living)
        if not {row["id"] for row in rows} - {run for executor in machine.executors for run in executor.held}:
            return
        machine.clock.skip(_SKIP_S)
        await asyncio.sleep(_LOOK_S)


async def _stuck(machine: Machine, ledger: Ledger) -> None:
    async with machine.database.connection() as connection:
        runs = await connection.fetch(
            "select id, st::text as st, owner, slot, epoch, rev, mail, ga, gb from rt.live order by id limit 5"
        )
        waits = await connection.fetch(
            "select run, kind::text as kind, sid, due_at, arming, child from rt.wait limit 5"
        )
        marks = await connection.fetch("select target, kind, body from rt.mark limit 5")
    left = "; ".join(str(dict(row)) for row in (*runs, *waits, *marks))
    ledger.faults.append(f"the engine does not come to an end: {left}")
