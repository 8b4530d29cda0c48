"""What Postgres did during a block: commits, flushes and bytes of its log, and how updates were made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import asyncpg

from tests.bench.figures import Figure

# A backend tells what it did at most once a second, when it is idle.
_TOLD_S = 1.2
_COUNTERS = """
    select (select xact_commit from pg_stat_database where datname = current_database()) as commits,
           (select wal_bytes from pg_stat_wal) as wal_bytes,
           (select sum(fsyncs) from pg_stat_io where object = 'wal') as flushes,
           (select sum(n_tup_upd) from pg_stat_user_tables) as updates,
           (select sum(n_tup_hot_upd) from pg_stat_user_tables) as hot_updates
"""


class PostgresWork:
    """Counts during the block that it is entered for. An async context manager."""

    def __init__(self, database: asyncpg.Connection) -> None:
        self._database = database
        self._before: Mapping[str, float] = {}
        self._done: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        self._before = await self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        after = await self._look()
        self._done = {name: after[name] - self._before[name] for name in after}

    def figures(self, operations: int) -> list[Figure]:
        """For one operation; `hot_pct` are the updates that touched no index."""
        found = [
            Figure("commits_per_op", self._done["commits"] / operations, "1"),
            Figure("flushes_per_op", self._done["flushes"] / operations, "1"),
            Figure("wal_bytes_per_op", self._done["wal_bytes"] / operations, "B"),
        ]
        if self._done["updates"]:
            found.append(Figure("hot_pct", self._done["hot_updates"] / self._done["updates"] * 100, "%"))
        return found

    async def _look(self) -> dict[str, float]:
        await asyncio.sleep(_TOLD_S)
        row = await self._database.fetchrow(_COUNTERS)
        return {name: float(value or 0) for name, value in row.items()}
