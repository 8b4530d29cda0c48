"""The pool, where the server goes away under it."""

from __future__ import annotations

import pytest

from services.core.domain.errors import Unavailable
from services.core.store.database import Database


async def test_a_session_that_is_lost_as_it_is_given_back_is_the_database_that_is_away(database: Database) -> None:
    with pytest.raises(Unavailable):
        async with database.connection() as connection:
            # The loop hears of it after the pool has looked, and before the pool takes the connection.
            connection._transport.abort()
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1
