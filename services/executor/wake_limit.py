"""An end for what waits in the database for the moment at which timers are due, where its clock is set back meanwhile.

Postgres sleeps until its clock shows a time, and measures its own time limits by the same clock: set back by an hour,
it would hold the rows of the runs for that hour. So their time is taken here, by a clock that nobody sets. Who is found
asleep when it is over gives up: nothing of what it did has happened. A call that is late because the server is slow
goes on, as it may be committed already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.store.database import Database
from services.core.store.queries import queries

_PATIENCE_S = 0.4


@contextmanager
def wake_limit(database: Database, connection: asyncpg.Connection, ahead_ms: int) -> Iterator[None]:
    """In this block what the connection executes may sleep for `ahead_ms`, and a moment. Then it fails, as
    `Unavailable`.
    """
    ending: list[asyncio.Task[None]] = []

    def end() -> None:
        ending.append(asyncio.create_task(_end_wait(database, connection.get_server_pid()), name="wake-limit"))

    timer = asyncio.get_running_loop().call_later(ahead_ms / 1_000 + _PATIENCE_S, end)
    try:
        yield
    finally:
        timer.cancel()
        for task in ending:
            task.cancel()


async def _end_wait(database: Database, session: int) -> None:
    while True:
        with suppress(Unavailable):
            async with database.connection() as connection:
                await connection.fetch(queries("executor")["end_wait"], session)
        await asyncio.sleep(_PATIENCE_S)
