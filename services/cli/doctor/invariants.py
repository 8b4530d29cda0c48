"""Looks whether what must always hold does hold (architecture section 6), in samples of bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

import asyncpg

from services.cli.doctor.finding import Finding, State
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries

SAMPLE = 10_000
"""Rows of a table that each look reads at most, the newest where it can."""

_SHOWN = 3
_ADVICE = "a fault of the engine, or the database was changed by hand: keep the logs, take a backup, and report it"


class Rule(NamedTuple):
    """An invariant by its number, what it says, and the query that finds what breaks it."""

    invariant: int
    text: str
    query: str


RULES = (
    Rule(1, "a run is active or has ended, and not both", "active_xor_ended"),
    Rule(1, "what is active is a run", "active_is_a_run"),
    Rule(1, "an accepted event is stored", "accepted_is_stored"),
    Rule(2, "a memoized step has no open wait", "memoized_and_waiting"),
    Rule(2, "steps have places of their own", "places_of_steps"),
    Rule(3, "a resting run has something that wakes it", "something_wakes_it"),
    Rule(3, "a wait for a child has the child", "has_its_child"),
    Rule(4, "no more slots than the limit", "within_its_limit"),
    Rule(4, "a limited run is leased only with its slot", "leased_with_its_slot"),
    Rule(5, "a tick of cron has one run", "a_tick_once"),
    Rule(5, "no timer was early", "not_early"),
    Rule(6, "of an event and a timeout one has won", "one_of_event_and_timeout"),
    Rule(7, "an ended run has no lease, wait or slot", "ended_has_nothing"),
    Rule(7, "a wait belongs to an active run", "a_wait_has_its_run"),
    Rule(8, "everything of a run is its tenant's", "of_one_tenant"),
    Rule(9, "a run goes on the trace of what started it", "one_trace"),
)


async def invariants(connection: asyncpg.Connection, sample: int = SAMPLE) -> AsyncIterator[Finding]:
    """One finding for each rule."""
    for rule in RULES:
        subject = f"invariant {rule.invariant}: {rule.text}"
        try:
            rows = await connection.fetch(queries("doctor")[rule.query], sample)
        except asyncpg.QueryCanceledError:
            yield Finding(subject, "not looked at: it took too long", "ask again when there is less to do", State.WATCH)
            continue
        yield Finding.of(subject, named(rows), _ADVICE)


def named(rows: list[asyncpg.Record]) -> str:
    """Some of the runs that were found, as people name them; nothing for none."""
    if not rows:
        return ""
    shown = ", ".join(str(row["id"]) if isinstance(row["id"], int) else ulid_text(row["id"]) for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return f"{shown}{more}"
