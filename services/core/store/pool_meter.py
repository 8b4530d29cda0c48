"""How much of its pools a process uses, and how far its clock is from Postgres's."""

from __future__ import annotations

from collections.abc import Callable

from services.core.runtime.metric_table import CLOCK_SKEW, POOL_CONNECTIONS, POOL_LIMIT
from services.core.runtime.metrics import Metrics, Read
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock


def watch_pools(metrics: Metrics, *databases: Database) -> None:
    """Tell of each pool how many of its connections are in use, how many idle, and how many there may be."""
    for database in databases:
        metrics.watch(POOL_CONNECTIONS, _reader(database, lambda size, idle: size - idle), database.name, "used")
        metrics.watch(POOL_CONNECTIONS, _reader(database, lambda _, idle: idle), database.name, "idle")
        metrics.watch(POOL_LIMIT, _constant(database.size), database.name)


def watch_clock(metrics: Metrics, theirs: DatabaseClock) -> None:
    """Tell how far Postgres's clock is ahead, once it is known."""
    metrics.watch(CLOCK_SKEW, lambda: theirs.skew_ms() / 1_000 if theirs.known else None)


def _reader(database: Database, of: Callable[[int, int], int]) -> Read:
    def read() -> float | None:
        use = database.use
        return None if use is None else of(*use)

    return read


def _constant(value: float) -> Read:
    return lambda: value
