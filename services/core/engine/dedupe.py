"""An event is accepted once per id: who came first, and what the later ones are answered (rulings C9)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg
import msgspec

from services.core.domain.matching import name_hash
from services.core.engine.accept_plan import EventPlan, Incoming
from services.core.runtime.ids import ulid_uuid
from services.core.store.queries import queries, tenant_query


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event. For a duplicate: the original's id and effects."""

    id: UUID
    name: str
    duplicate: bool
    runs: tuple[UUID, ...]
    resumed: int
    cancelled: int

    @classmethod
    def of(cls, plan: EventPlan) -> Accepted:
        """The answer for an event that was carried out."""
        return cls(
            id=plan.id,
            name=plan.incoming.name,
            duplicate=False,
            runs=tuple(plan.runs),
            resumed=plan.resumed,
            cancelled=plan.cancelled,
        )


@dataclass(frozen=True, slots=True)
class Context:
    """What is to be known before waits are looked for: by which definitions, when, along which paths, and whether
    anybody waits at all. `paths` are by the hash of a name, with their hashes.
    """

    version: int | None
    now_ms: int
    paths: Mapping[int, Sequence[tuple[str, int]]]
    waited: bool

    @classmethod
    def of(cls, row: asyncpg.Record) -> Context:
        """What `rt.begin_accept_v1` answers."""
        paths: dict[int, list[tuple[str, int]]] = {}
        for name_h, path, path_h in zip(row["name_hs"] or (), row["paths"] or (), row["path_hs"] or (), strict=True):
            paths.setdefault(name_h, []).append((path, path_h))
        return cls(row["version"], row["now_ms"], paths, row["waited"])


def firsts(events: Sequence[Incoming]) -> list[int]:
    """For each event of a request the place of the first one with the same dedupe key: its own, unless it is a
    double.
    """
    seen: dict[tuple[str, str], int] = {}
    places = []
    for place, event in enumerate(events):
        first = place if event.event_id is None else seen.setdefault((event.src, event.event_id), place)
        places.append(first)
    return places


async def begin_accept(
    connection: asyncpg.Connection,
    tenant: int,
    events: Sequence[Incoming],
    ids: Sequence[UUID],
    accept_ids: Sequence[UUID],
    *,
    offered: Collection[UUID],
    again: bool,
    lock_ms: int,
) -> tuple[dict[int, Accepted], Context]:
    """Register the dedupe keys of the events. What was accepted before, by place, and what is to be known for the
    others. Waits for a duplicate still in flight, for `lock_ms` at most.

    With `again` it also recognizes events of these very calls (`ids`) whose commit's answer was lost: they are no
    duplicates. `offered` are the accept ids of those whose sender made the ids.
    """
    known: dict[int, Accepted] = {}
    if again:
        known = await _stored_before(connection, tenant, events, ids, accept_ids, offered)
    keyed = {
        (event.src, event.event_id): place
        for place, (event, first) in enumerate(zip(events, firsts(events), strict=True))
        if event.event_id is not None and first == place and place not in known
    }
    while True:
        row = await connection.fetchrow(
            queries("engine")["begin_accept"],
            lock_ms,
            tenant,
            [src for src, _ in keyed],
            [eid for _, eid in keyed],
            [ids[place] for place in keyed.values()],
            [accept_ids[place] for place in keyed.values()],
            [name_hash(name) for name in {event.name: None for event in events}],
        )
        assert row is not None, "the door answers one row"
        lost = keyed.keys() - set(zip(row["new_src"] or (), row["new_eid"] or (), strict=True))
        if not lost:
            return known, Context.of(row)
        query = tenant_query("engine", "accepted_before", tenant)
        for first in await connection.fetch(query, tenant, [src for src, _ in lost], [eid for _, eid in lost]):
            place = keyed[(first["src"], first["eid"])]
            mine = first["accept_id"].int == accept_ids[place].int
            known[place] = _from_row(first, duplicate=not mine)
        # An original that retention took away between the two statements is no duplicate any more: its id is free.
        keyed = {key: place for key, place in keyed.items() if key in lost and place not in known}


async def _stored_before(
    connection: asyncpg.Connection,
    tenant: int,
    events: Sequence[Incoming],
    ids: Sequence[UUID],
    accept_ids: Sequence[UUID],
    offered: Collection[UUID],
) -> dict[int, Accepted]:
    """The events that are stored under their ids, by place. Of a request whose ids were offered none, if what is stored
    is not just what it holds: it is another's then, and storing will find the id taken.
    """
    places = {id.int: place for place, id in enumerate(ids)}
    rows = await connection.fetch(tenant_query("engine", "stored_events", tenant), list(ids))
    found = {places[row["id"].int]: row for row in rows}
    strangers: set[UUID] = set()
    for place, accept_id in enumerate(accept_ids) if found and offered else ():
        row, event = found.get(place), events[place]
        # Nothing is stored under the id of a duplicate; all others are stored together.
        same = event.event_id is not None if row is None else _is_same(row, event)
        if accept_id in offered and not same:
            strangers.add(accept_id)
    return {
        place: _from_row(row, duplicate=False) for place, row in found.items() if accept_ids[place] not in strangers
    }


def _is_same(row: asyncpg.Record, event: Incoming) -> bool:
    return bool(row["name"] == event.name and row["digest"] == hashlib.sha256(event.data.encode()).digest())


async def next_context(connection: asyncpg.Connection, tenant: int, names: Iterable[str], *, lock_ms: int) -> Context:
    """The context of further events of a transaction, which may have opened waits since."""
    hashes = [name_hash(name) for name in dict.fromkeys(names)]
    row = await connection.fetchrow(queries("engine")["begin_accept"], lock_ms, tenant, [], [], [], [], hashes)
    assert row is not None, "the door answers one row"
    return Context.of(row)


def _from_row(row: asyncpg.Record, *, duplicate: bool) -> Accepted:
    effects = json.loads(row["effects"])
    return Accepted(
        id=UUID(int=row["id"].int),
        name=row["name"],
        duplicate=duplicate,
        runs=tuple(ulid_uuid(run) for run in effects["runs"]),
        resumed=effects["resumed"],
        cancelled=effects["cancelled"],
    )
