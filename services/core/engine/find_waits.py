"""Which open waits the events of a request hit. They are read in pages and judged in small pieces: however many there
are, memory holds a page and what is hit, and everybody else on the event loop goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from services.core.domain.expression import condition_from_json, condition_holds
from services.core.domain.matching import lookup_keys, name_hash
from services.core.engine.accept_plan import EventPlan, FoundWait
from services.core.runtime.loop_share import LoopShare
from services.core.runtime.off_loop import OffLoop
from services.core.store.queries import queries

PAGE = 500

# The unit of work is about 0.2 µs: judging a condition costs one for each of its characters, reading it three.
PIECE = 2_500
_ROW = 10

Key = tuple[int, int, int]
"""Hashes of name, path and value."""
Paths = Mapping[int, Sequence[tuple[str, int]]]
"""By the hash of a name, the paths to look at with their hashes."""


@dataclass(slots=True)
class Hits:
    """What events hit, by their places: the first that cancels each run, and the first that fulfils each wait."""

    cancels: dict[UUID, int] = field(default_factory=dict)
    resumes: list[tuple[int, FoundWait]] = field(default_factory=list)

    def add(self, place: int, row: asyncpg.Record) -> None:
        """The event at `place` is the first that this stored wait takes."""
        run: UUID = row["run"]
        if row["kind"] == "x":
            self.cancels[run] = min(place, self.cancels.get(run, place))
        else:
            self.resumes.append((place, FoundWait(row["id"], run)))

    def by_event(self) -> tuple[dict[int, list[UUID]], dict[int, list[FoundWait]]]:
        """Runs that each event cancels, and waits that it resumes: none of a run that is cancelled by then."""
        cancels: dict[int, list[UUID]] = {}
        resumes: dict[int, list[FoundWait]] = {}
        for run, place in self.cancels.items():
            cancels.setdefault(place, []).append(run)
        for place, wait in self.resumes:
            if place < self.cancels.get(wait.run, place + 1):
                resumes.setdefault(place, []).append(wait)
        return cancels, resumes


async def find_hits(
    connection: asyncpg.Connection,
    tenant: int,
    plans: Sequence[EventPlan],
    paths: Paths,
    off_loop: OffLoop,
    share: LoopShare,
) -> Hits:
    """The waits of the tenant that these events hit, as one look at them sees it, in the caller's transaction."""
    size = sum(len(plan.incoming.data) for plan in plans) * max(map(len, paths.values()), default=0)
    keyed = await off_loop.run(size, _by_key, plans, paths)
    found = _Finder(connection, plans, list(keyed.values()), share)
    arguments = (tenant, list(range(len(keyed))), *map(list, zip(*keyed, strict=True)))
    rows = await connection.fetch(queries("engine")["find_waits"], *arguments, PAGE)
    if len(rows) < PAGE:
        await found.judge(rows)
        return found.hits
    cursor = await connection.cursor(queries("engine")["find_waits"], *arguments, None)
    while rows := await cursor.fetch(PAGE):
        await found.judge(rows)
    return found.hits


def _by_key(plans: Sequence[EventPlan], paths: Paths) -> dict[Key, list[int]]:
    """The places of the events that look under each key, in order. Equal ones look once."""
    keyed: dict[Key, list[int]] = {}
    for place, plan in enumerate(plans):
        name_h = name_hash(plan.incoming.name)
        for path_h, val_h in lookup_keys(plan.value, paths.get(name_h, ())):
            keyed.setdefault((name_h, path_h, val_h), []).append(place)
    return keyed


class _Finder:
    """Judges found waits, page by page."""

    def __init__(
        self, connection: asyncpg.Connection, plans: Sequence[EventPlan], places: Sequence[list[int]], share: LoopShare
    ) -> None:
        self.hits = Hits()
        self._connection = connection
        self._plans = plans
        self._places = places
        self._share = share

    async def judge(self, rows: Iterable[asyncpg.Record]) -> None:
        """Note for each of the waits the first event that hits it."""
        for row in rows:
            if row["size"] is None:
                place = next(self._named(row), None)
            else:
                place = await self._first_that_fulfils(row)
            if place is not None:
                self.hits.add(place, row)
            if self._share.spent(_ROW):
                await self._share.rest()

    def _named(self, row: asyncpg.Record) -> Iterator[int]:
        """Places of the events that have the wait's name, not only its hash."""
        return (place for place in self._places[row["n"]] if self._plans[place].incoming.name == row["event"])

    async def _first_that_fulfils(self, row: asyncpg.Record) -> int | None:
        text = row["cond"]
        if text is None:  # too big to be among many
            text = await self._connection.fetchval(queries("engine")["condition"], row["id"])
            if text is None:
                return None  # the wait has gone meanwhile
        condition = condition_from_json(text)
        weight = 3 * len(text)
        for place in self._named(row):
            weight += _ROW + len(text)
            if condition_holds(condition, self._plans[place].value):
                self._share.spent(weight)
                return place
            if self._share.spent(weight):
                await self._share.rest()
            weight = 0
        return None
