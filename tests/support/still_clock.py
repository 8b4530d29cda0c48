"""The engine's clock in a test's database, standing still until the test moves it."""

from __future__ import annotations

from datetime import datetime

import pytest

from services.core.store.database import Database

_INSTALL = """
create table public.still_clock (at timestamptz not null);
insert into public.still_clock values (rt.now());
create or replace function rt.now() returns timestamptz language sql volatile parallel safe as
    $$ select at from public.still_clock $$;
"""


class StillClock:
    """`rt.now()` of one database, for all its connections."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, instant: str) -> None:
        """Move it to an ISO-8601 instant."""
        async with self._database.connection() as connection:
            await connection.execute("update public.still_clock set at = $1", datetime.fromisoformat(instant))


@pytest.fixture
async def still_clock(database: Database) -> StillClock:
    """The clock of this test's database, stopped."""
    async with database.connection() as connection:
        await connection.execute(_INSTALL)
    return StillClock(database)
