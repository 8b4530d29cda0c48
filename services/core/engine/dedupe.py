"""An event is accepted once per id: who came first, and what the later ones are answered (rulings C9)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import msgspec

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


async def accepted_before(
    connection: asyncpg.Connection,
    tenant: int,
    events: Sequence[Incoming],
    ids: Sequence[UUID],
    accept_ids: Sequence[UUID],
    *,
    again: bool,
    lock_ms: int,
) -> dict[int, Accepted]:
    """Register the dedupe keys of the events; what was accepted before, by place. Waits for a duplicate still in
    flight, for `lock_ms` at most.

    With `again` it also recognizes events of these very calls (`ids`) whose commit's answer was lost: they are no
    duplicates.
    """
    known: dict[int, Accepted] = {}
    if again:
        places = {id.int: place for place, id in enumerate(ids)}
        for row in await connection.fetch(tenant_query("engine", "stored_events", tenant), list(ids)):
            known[places[row["id"].int]] = _from_row(row, duplicate=False)
    keyed = {
        (event.src, event.event_id): place
        for place, (event, first) in enumerate(zip(events, firsts(events), strict=True))
        if event.event_id is not None and first == place and place not in known
    }
    if not keyed:
        await connection.fetchrow(queries("engine")["assign_xid"], str(lock_ms))
        return known
    while keyed:
        won = await connection.fetch(
            queries("engine")["accept_ids"],
            tenant,
            [src for src, _ in keyed],
            [eid for _, eid in keyed],
            [ids[place] for place in keyed.values()],
            [accept_ids[place] for place in keyed.values()],
            str(lock_ms),
        )
        lost = keyed.keys() - {(row["src"], row["eid"]) for row in won}
        if lost:
            query = tenant_query("engine", "accepted_before", tenant)
            for row in await connection.fetch(query, tenant, [src for src, _ in lost], [eid for _, eid in lost]):
                place = keyed[(row["src"], row["eid"])]
                mine = row["accept_id"].int == accept_ids[place].int
                known[place] = _from_row(row, duplicate=not mine)
        # An original that retention took away between the two statements is no duplicate any more: its id is free.
        keyed = {key: place for key, place in keyed.items() if key in lost and place not in known}
    return known


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
