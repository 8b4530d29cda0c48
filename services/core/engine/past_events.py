"""The stored events that a look back comes to, oldest first, in pages.

They are read along their ids, which begin with a time: that finds what was received since then without a look at all
that came before. Where the time in an id is not about that of the receipt (a mark that was carried out late, a clock
that is off) the event was marked when it was stored; those are few and read first, along the time of their receipt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg

from services.core.store.id_range import end_id, first_id
from services.core.store.queries import tenant_query

_PAGE = 500
_PAGE_BYTES = 1024 * 1024
_SKEW_MS = 1_000
_FIRST = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Page:
    """Events that the wait may take as far as its condition goes, and the size of their data in characters."""

    events: Sequence[asyncpg.Record]
    size: int


class PastEvents:
    """One reading for a wait, a row of `arming_wait`: from its `since` to the time at which that row was read."""

    def __init__(self, wait: asyncpg.Record) -> None:
        self.more = True
        self.pages = 0
        self._wait = wait
        self._among_odd = True
        self._after_at: datetime = wait["since"]
        self._after = _FIRST
        self._until_ms = wait["now_ms"]

    async def next_page(self, connection: asyncpg.Connection) -> Page:
        """The next events; `more` says then whether to ask again."""
        self.pages += 1
        rows = await (self._odd(connection) if self._among_odd else self._plain(connection))
        go_on = bool(rows) and rows[-1]["more"]
        if go_on:
            self._after = rows[-1]["id"]
        elif self._among_odd:
            self._among_odd = False
            self._after = first_id(self._wait["since_ms"])
        else:
            self.more = False
        events = [row for row in rows if row["data"] is not None]
        return Page(events, sum(len(row["data"]) for row in events))

    async def _odd(self, connection: asyncpg.Connection) -> list[asyncpg.Record]:
        wait = self._wait
        query = tenant_query("engine", "odd_past_events", wait["tenant"])
        until_ms = self._until_ms + _SKEW_MS
        place = (self._after_at, self._after, until_ms, _PAGE, _PAGE_BYTES)
        rows: list[asyncpg.Record] = await connection.fetch(query, wait["event"], wait["run"], *place)
        if rows:
            self._after_at = rows[-1]["received_at"]
        return rows

    async def _plain(self, connection: asyncpg.Connection) -> list[asyncpg.Record]:
        wait = self._wait
        query = tenant_query("engine", "past_events", wait["tenant"])
        place = (self._after, end_id(self._until_ms), _PAGE, _PAGE_BYTES)
        rows: list[asyncpg.Record] = await connection.fetch(query, wait["event"], wait["since"], wait["run"], *place)
        return rows
