"""The engine's clock in a test's database: it stands still until the test moves it, or lets it run."""

from __future__ import annotations

from datetime import datetime
from typing import Self

import pytest

from services.core.store.database import Database

_INSTALL = """
create table public.still_clock (at timestamptz not null, runs_since timestamptz);
insert into public.still_clock (at) values (rt.now());
create or replace function rt.now() returns timestamptz language sql volatile parallel safe as $$
    select at + coalesce(clock_timestamp() - runs_since, interval '0') from public.still_clock
$$;
"""


class StillClock:
    """`rt.now()` of one database, for all its connections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    async def install(cls, database: Database) -> Self:
        """Take over `rt.now()`, and stop it."""
        async with database.connection() as connection:
            await connection.execute(_INSTALL)
        return cls(database)

    async def set(self, instant: str) -> None:
        """Move it to an ISO-8601 instant, where it stands."""
        await self._write("update public.still_clock set at = $1, runs_since = null", instant)

    async def run_from(self, instant: str) -> None:
        """Move it to an instant and let it run."""
        await self._write("update public.still_clock set at = $1, runs_since = clock_timestamp()", instant)

    async def step(self, ms: int) -> None:
        """Set it so many milliseconds on, or back, from what it shows, and let it run from there."""
        statement = (
            "update public.still_clock set at = rt.now() + $1::bigint * interval '1 ms', runs_since = clock_timestamp()"
        )
        async with self._database.connection() as connection:
            await connection.execute(statement, ms)

    async def _write(self, statement: str, instant: str) -> None:
        async with self._database.connection() as connection:
            await connection.execute(statement, datetime.fromisoformat(instant))


@pytest.fixture
async def still_clock(database: Database) -> StillClock:
    """The clock of this test's database, stopped."""
    return await StillClock.install(database)
