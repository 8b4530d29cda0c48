"""Tells whoever runs `runr dev` why runs do not go on, while they look: each reason once."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import UUID

import asyncpg

from services.cli.table import one_line
from services.core.domain.errors import Unavailable
from services.core.domain.run_wait import RunWait
from services.core.runtime.ids import ulid_text
from services.core.store.database import connect, translated
from services.core.store.queries import queries
from services.core.store.run_waits import run_waits

_LOOK_S = 3.0
_READY_MS = 3_000
_NEWEST, _MOST = 1_000, 20
_FORGET_S = 60.0
_REASON = ", because of "

Reason = tuple[int, str, str]
"""Tenant, workflow, and what its runs wait for, without what is of one run alone."""


async def tell_stalled(dsn: str) -> None:
    """Look every few seconds, until cancelled. A database that is away is looked at again."""
    told = Told()
    while True:
        with suppress(Unavailable, asyncpg.PostgresError):
            connection = await connect(dsn, "runr-dev")
            try:
                while True:
                    await asyncio.sleep(_LOOK_S)
                    with translated():
                        found = await stalled(connection)
                    for line in told.news(found):
                        sys.stdout.write(f"{line}\n")
                    sys.stdout.flush()
            finally:
                connection.terminate()
        await asyncio.sleep(_LOOK_S)


async def stalled(connection: asyncpg.Connection) -> list[tuple[asyncpg.Record, RunWait]]:
    """Some of the newest runs, of all tenants, that should go on and do not. One that waits for a slot is none."""
    rows = await connection.fetch(queries("doctor")["stalled"], _NEWEST, _READY_MS, _MOST)
    by_tenant: dict[int, list[asyncpg.Record]] = defaultdict(list)
    for row in rows:
        by_tenant[row["tenant"]].append(row)
    waits: dict[UUID, RunWait] = {}
    for tenant, theirs in by_tenant.items():
        waits |= await run_waits(connection, tenant, theirs)
    return [(row, waits[row["id"]]) for row in rows if row["id"] in waits]


class Told:
    """What has been told, so that it is not told again of the next run, nor a moment later."""

    def __init__(self) -> None:
        self._seen: dict[Reason, float] = {}

    def news(self, found: Iterable[tuple[Mapping[str, Any], RunWait]]) -> list[str]:
        """A line for each reason that is new."""
        now = monotonic()
        self._seen = {reason: at for reason, at in self._seen.items() if now - at < _FORGET_S}
        lines = []
        for row, wait in found:
            reason = _reason(row, wait)
            if reason not in self._seen:
                lines.append(one_line(f"run {ulid_text(row['id'])} of {row['workflow']} {wait.message}"))
            self._seen[reason] = now
        return lines


def _reason(row: Mapping[str, Any], wait: RunWait) -> Reason:
    said = wait.message.partition(_REASON)[2] if wait.kind == "retry" else wait.message
    return row["tenant"], row["workflow"], f"{wait.kind} {said}"
