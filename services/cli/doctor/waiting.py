"""Looks for runs that should go on and do not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg

from services.cli.doctor.finding import Finding, State
from services.cli.doctor.invariants import SAMPLE, named
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries

_QUEUE_S = 60
_WORKERS_S = 30
_OVERDUE_MS = 30_000
_MARK_MS = 60_000
_SHOWN = 3
_STUCK = {
    "held_by_the_dead": (
        "runs are held by the living",
        "a scheduler takes them back within seconds; if this stays, look at the schedulers' logs",
    ),
    "held_up": (
        "free slots of limits are given away",
        "the schedulers' duty `gates` does it every ten seconds: look at their logs",
    ),
    "not_looked_back": (
        "waits have looked back",
        "the schedulers' duty `arming` does it: look at their logs",
    ),
}


async def waiting(connection: asyncpg.Connection) -> AsyncIterator[Finding]:
    """Ready runs that nobody takes, timers that nobody fires, effects that nobody carries out, runs that are stuck."""
    backlog = await connection.fetchrow(queries("scheduler")["backlog"], SAMPLE)
    longest = await connection.fetch(queries("doctor")["longest_waiting"], _SHOWN)
    late = [row for row in longest if row["waited_s"] > _QUEUE_S]
    yield Finding.of(
        "ready runs are taken",
        ", ".join(f"{ulid_text(row['id'])} of tenant {row['slug']} has waited {row['waited_s']} s" for row in late),
        f"{backlog['queued']} wait: see docs/runbooks/queue-waits.md",
        state=State.WATCH,
    )
    pooled = await connection.fetch(queries("doctor")["waiting_for_workers"], _SHOWN)
    alone = [row for row in pooled if row["waited_s"] > _WORKERS_S]
    yield Finding.of(
        "workers take their runs",
        ", ".join(f"a run of {row['workflow']} has waited {row['waited_s']} s" for row in alone),
        "start workers that serve these workflows: see docs/runbooks/no-worker.md",
        state=State.WATCH,
    )
    overdue = backlog["overdue_ms"]
    yield Finding.of(
        "timers are fired",
        f"one is due for {overdue // 1000} s" if overdue > _OVERDUE_MS else "",
        "is a scheduler running? See docs/runbooks/timers-late.md",
    )
    mark = backlog["mark_ms"]
    yield Finding.of(
        "effects are carried out",
        f"one has waited for {mark // 1000} s" if mark > _MARK_MS else "",
        "see docs/runbooks/effects-wait.md",
        state=State.WATCH,
    )
    for query, (subject, advice) in _STUCK.items():
        rows = await connection.fetch(queries("doctor")[query], SAMPLE)
        yield Finding.of(subject, named(rows), advice, state=State.WATCH)
