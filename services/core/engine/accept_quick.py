"""Events that are accepted in one call of the database: what nearly all are.

What an event does is decided before, by definitions and paths that are remembered; the call compares both with what
holds, finds the waits itself, and does all or nothing. It knows a condition only by its text: the one that asks for no
more than the value that the event has at the wait's path. Where anything is left to be thought about, it says so, and
the events are accepted step by step (`accept_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from services.core.domain.expression import value_at
from services.core.domain.json_value import hash_value
from services.core.domain.matching import NAME_ALONE, SCAN, equal_text, name_hash
from services.core.engine.accept_outcome import Outcome
from services.core.engine.accept_plan import AcceptRequest, EventPlan, Incoming, cut, event_columns, fill, new_plans
from services.core.engine.accept_starts import EventStarts
from services.core.engine.dedupe import Accepted, firsts
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.find_waits import PIECE, Paths
from services.core.engine.hit_runs import Aftermath, is_gated
from services.core.engine.isolate import waiting_for_locks
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import Clock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.loop_share import LoopShare
from services.core.runtime.off_loop import OffLoop
from services.core.store.batch import columns, narrowed
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.database import Database
from services.core.store.queries import queries

_MOST_NAMES = 10_000
_THINK_S = 10.0
"""For so long events of a name are not tried again whose waits had to be judged."""

Note = TypeVar("Note")
Name = tuple[int, int]
"""A tenant and the hash of an event's name."""


class QuickAccept:
    """Accepts requests of one tenant in one call, where that is possible."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        ids: UlidFactory,
        traces: RunTraces,
        off_loop: OffLoop,
        clock: Clock,
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._ids = ids
        self._traces = traces
        self._off_loop = off_loop
        self._clock = clock
        self._paths: dict[Name, Sequence[tuple[str, int]]] = {}
        self._judged: dict[Name, float] = {}

    def learn(self, tenant: int, events: Sequence[Incoming], paths: Paths) -> None:
        """These are the paths that waits for the names of these events may be open on."""
        for name_h in {name_hash(event.name) for event in events}:
            _remember(self._paths, (tenant, name_h), paths.get(name_h, ()))

    async def accept(
        self, tenant: int, requests: Sequence[AcceptRequest], outcome: Outcome, *, patient: bool
    ) -> dict[UUID, list[Accepted]] | None:
        """What became of each request's events, by its accept id; None where they have to be accepted step by step.

        Raises Busy where a lock is not to be had soon, and what the driver raises.
        """
        places = [(request, place) for request in requests for place in range(len(request.events))]
        events = [request.events[place] for request, place in places]
        definitions = self._definitions.held(tenant)
        names = {name_hash(event.name): None for event in events}
        paths = self._known_paths(tenant, names)
        if definitions is None or paths is None or firsts(events) != list(range(len(events))):
            return None
        if cut(events, definitions) < len(events):
            return None
        now_ms = self._ids.now_ms()
        size = sum(len(event.data) for event in events)
        plans = await self._off_loop.run(size, new_plans, places, now_ms)
        await fill(plans, {}, {}, definitions, LoopShare(PIECE))
        starts = EventStarts.of(plans, self._ids, self._traces.spans)
        if any(row.idem is not None for row in starts.rows):
            return None
        aftermath = Aftermath()
        started = list(starts.note(plans, [(row.id, True) for row in starts.rows], aftermath))
        lookups = await self._off_loop.run(size * max(1, *map(len, paths.values())), _lookups, plans, paths)
        ids = [
            (event.src, event.event_id, request.ids[place], request.accept_id)
            for event, (request, place) in zip(events, places, strict=True)
            if event.event_id is not None
        ]
        known = [(name_h, path) for name_h, found in paths.items() for path, _ in found]
        async with self._database.connection() as connection:
            with waiting_for_locks(patient=patient) as lock_ms:
                rows = await connection.fetch(
                    queries("engine")["accept"],
                    lock_ms,
                    tenant,
                    definitions.version,
                    now_ms,
                    self._traces.enabled,
                    *columns(ids, 4),
                    list(paths),
                    *columns(known, 2),
                    *lookups,
                    [plan.value["id"] for plan in plans],
                    *narrowed(event_columns(plans)),
                    *narrowed(columns(starts.rows, len(StartRow._fields))),
                    *columns(starts.waits, len(WaitRow._fields)),
                )
        if rows[0]["came_of"] != "done":
            if rows[0]["came_of"] == "judge":
                self._think_about(tenant, {name_hash(events[place].name) for place in rows[0]["places"]})
            return None
        _note_resumed(plans, rows[1:])
        aftermath.note_delivered(rows[1:])
        outcome.aftermath = aftermath
        outcome.started += started
        outcome.followed |= {plan.request.accept_id for plan in plans if plan.goes_on}
        answers: dict[UUID, list[Accepted]] = {}
        for plan in plans:
            answers.setdefault(plan.request.accept_id, []).append(Accepted.of(plan))
        return answers

    def _known_paths(self, tenant: int, names: Iterable[int]) -> Paths | None:
        """The paths of these names; None where one has not been seen yet, or its waits are to be judged."""
        now = self._clock.monotonic()
        found: dict[int, Sequence[tuple[str, int]]] = {}
        for name_h in names:
            known = self._paths.get((tenant, name_h))
            if known is None or self._judged.get((tenant, name_h), now) > now:
                return None
            found[name_h] = known
        return found

    def _think_about(self, tenant: int, names: Iterable[int]) -> None:
        for name_h in names:
            _remember(self._judged, (tenant, name_h), self._clock.monotonic() + _THINK_S)


def _lookups(plans: Sequence[EventPlan], paths: Paths) -> list[list[Any]]:
    """The columns of the keys that events look under: place, the three hashes, and the condition that holds for it.
    Equal keys are looked under once, for the first event.
    """
    keyed: dict[tuple[int, int, int], tuple[int, str | None]] = {}
    for place, plan in enumerate(plans):
        name_h = name_hash(plan.incoming.name)
        for scan in (SCAN, NAME_ALONE):
            keyed.setdefault((name_h, *scan), (place, None))
        for path, path_h in paths[name_h]:
            value = value_at(path, plan.value)
            key = (name_h, path_h, hash_value(value))
            if key not in keyed:
                keyed[key] = (place, equal_text(path, value))
    return columns([(place, *key, text) for key, (place, text) in keyed.items()], 5)


def _note_resumed(plans: Sequence[EventPlan], rows: Iterable[asyncpg.Record]) -> None:
    """Note in the plans what each event resumed."""
    for row in rows:
        for place in row["places"]:
            plan = plans[place]
            plan.resumed += 1
            plan.goes_on |= is_gated(row)
            if row["run"] not in plan.resumed_runs:
                plan.resumed_runs.append(row["run"])


def _remember(notes: dict[Name, Note], name: Name, note: Note) -> None:
    """Keep a note as the newest, and not too many."""
    notes.pop(name, None)
    while len(notes) >= _MOST_NAMES:
        del notes[next(iter(notes))]
    notes[name] = note
