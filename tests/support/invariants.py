"""What must always hold (architecture section 6), looked up in the database.

Each query finds what breaks an invariant; all run in one snapshot, so they hold at any moment, also while services die.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple
from uuid import UUID

import asyncpg

from services.cli.doctor import invariants as doctor
from services.core.runtime.ids import ulid_uuid
from services.core.store.queries import queries


class Rule(NamedTuple):
    """One rule: the invariant it belongs to, what it says, and a query that answers the rows that break it."""

    invariant: int
    text: str
    query: str


RULES = (
    Rule(
        1,
        "a run is active or has ended, and not both",
        """select r.id from rt.runs r left join rt.live l on l.id = r.id left join rt.ends e on e.run = r.id
           where (l.id is null) = (e.run is null)""",
    ),
    Rule(
        1,
        "what is active or has ended is a run",
        """select x.id from (select id from rt.live union all select run from rt.ends) x
           where not exists (select from rt.runs r where r.id = x.id)""",
    ),
    Rule(
        1,
        "an accepted event is stored with what it did",
        """select i.event from rt.event_ids i where not exists (select from rt.events e where e.id = i.event)""",
    ),
    Rule(
        2,
        "a memoized step has no open wait",
        """select s.run, s.sid from rt.steps s join rt.wait w on w.run = s.run and w.sid = s.sid""",
    ),
    Rule(
        2,
        "steps have places of their own, within what was given",
        """select s.run, s.seq, count(*) from (
               select run, seq from rt.steps where status <> 'x'
               union all select run, seq from rt.wait where kind in ('s', 'e', 'c')) s
           left join rt.live l on l.id = s.run left join rt.ends e on e.run = s.run
           group by s.run, s.seq, l.steps, e.steps
           having count(*) > 1 or s.seq < 0 or s.seq >= coalesce(l.steps, e.steps)""",
    ),
    Rule(
        2,
        "a step that failed has an error, and only such a step",
        """select run, sid from rt.steps
           where (status = 'f') <> (error is not null) or output is not null and status <> 'c'""",
    ),
    Rule(
        2,
        "no more attempts than allowed",
        """select a.run, a.sid, a.k from rt.attempts a where a.k > 21 or a.k < 1""",
    ),
    Rule(
        3,
        "a resting run has something that will wake it",
        """select l.id, l.st from rt.live l
           where l.st in ('s', 'w', 'd', 'p')
             and not exists (select from rt.wait w where w.run = l.id and w.kind <> 'x')
             and not exists (select from rt.mark m where m.target = l.id)""",
    ),
    Rule(
        3,
        "a sleeping run has a timer, a delayed one too",
        """select l.id, l.st from rt.live l
           where l.st in ('s', 'd')
             and not exists (select from rt.wait w where w.run = l.id and w.kind <> 'x' and w.due_at is not null)""",
    ),
    Rule(
        3,
        "owned and running is the same, and so is queued and having a place",
        """select id from rt.live where (st = 'r') <> (owner is not null) or (st in ('q', 'b')) <> (qk is not null)""",
    ),
    Rule(
        3,
        "a wait for a child has the child, active or about to be told",
        """select w.run, w.child from rt.wait w
           where w.kind = 'c'
             and not exists (select from rt.live l where l.id = w.child)
             and not exists (select from rt.mark m
                             where m.target = w.run and m.kind = 'child_end' and m.body = w.child::text)""",
    ),
    Rule(
        4,
        "no more slots than the limit",
        """select x.gate, count(*) from rt.gate_rule g join rt.live l on l.wf = g.wf and l.gv = g.version and l.slot
           cross join lateral (values (l.ga, g.a), (l.gb, g.b)) x(gate, most)
           where x.gate is not null
           group by x.gate, x.most having count(*) > x.most""",
    ),
    Rule(
        4,
        "the limits that the engine keeps are those of the definition",
        """select d.id, d.definition from rt.workflows d left join rt.gate_rule g on g.wf = d.id
           where (json_array_length(d.definition::json -> 'concurrency') > 0) <> (g.a is not null)
              or coalesce(g.a, g.b, 0) > (select max((x ->> 'limit')::int)
                                          from json_array_elements(d.definition::json -> 'concurrency') x)""",
    ),
    Rule(
        4,
        "a gated run is leased only with its slot",
        """select id from rt.live where ga is not null and st = 'r' and not slot""",
    ),
    Rule(
        5,
        "a tick of cron has one run",
        """select wf, event_data, count(*) from rt.runs where source = 'cron'
           group by wf, event_data having count(*) > 1""",
    ),
    Rule(
        6,
        "an event resumes no run that it also started",
        """select s.run, s.event from rt.steps s join rt.runs r on r.id = s.run and r.event = s.event
           where s.event is not null""",
    ),
    Rule(
        6,
        "a step with an event is a completed wait for one",
        """select run, sid from rt.steps
           where event is not null and (kind <> 'e' or status <> 'c' or output is null)""",
    ),
    Rule(
        6,
        "a wait ended by its timeout has no event",
        """select run, sid from rt.steps where kind = 'e' and status = 'c' and (output is null) <> (event is null)""",
    ),
    Rule(
        6,
        "an event resumed at least the waits that it says; those that looked back came later",
        """select e.id from rt.events e
           left join (select event, count(*) as waits from rt.steps where event is not null group by event) s
             on s.event = e.id
           where (e.effects::json ->> 'resumed')::int > coalesce(s.waits, 0)""",
    ),
    Rule(
        7,
        "an ended run has no lease, wait or slot left",
        """select e.run from rt.ends e
           where exists (select from rt.live l where l.id = e.run)
              or exists (select from rt.wait w where w.run = e.run)""",
    ),
    Rule(
        7,
        "a wait belongs to an active run",
        """select w.id, w.run from rt.wait w where not exists (select from rt.live l where l.id = w.run)""",
    ),
    Rule(
        8,
        "everything of a run is its tenant's",
        """select r.id from rt.runs r
           where exists (select from rt.live x where x.id = r.id and x.tenant <> r.tenant)
              or exists (select from rt.ends x where x.run = r.id and x.tenant <> r.tenant)
              or exists (select from rt.wait x where x.run = r.id and x.tenant <> r.tenant)
              or exists (select from rt.steps x where x.run = r.id and x.tenant <> r.tenant)
              or exists (select from rt.attempts x where x.run = r.id and x.tenant <> r.tenant)
              or not exists (select from rt.workflows x where x.tenant = r.tenant and x.id = r.wf)
              or exists (select from rt.runs x where x.id = r.parent and x.tenant <> r.tenant)""",
    ),
    Rule(
        8,
        "what an event did is its tenant's",
        """select s.run, s.event from rt.steps s join rt.events e on e.id = s.event where e.tenant <> s.tenant""",
    ),
    Rule(
        9,
        "a run goes on the trace of what started it",
        """select r.id, r.trace, s.trace from rt.runs r
           join (select id, tenant, trace from rt.events union all select id, tenant, trace from rt.runs) s
             on s.tenant = r.tenant and s.id = coalesce(r.parent, r.event)
           where r.replay_of is null and split_part(r.trace, '-', 2) <> split_part(s.trace, '-', 2)""",
    ),
)


async def check(database_url: str, *, accepted: Iterable[str] = ()) -> None:
    """Raises AssertionError with everything that is not as it must be. `accepted` are runs that were acknowledged."""
    found = await violations(database_url, accepted=[ulid_uuid(run) for run in accepted])
    assert not found, "\n".join(found)


async def violations(database_url: str, *, accepted: Collection[UUID] = ()) -> list[str]:
    """A line for each row that breaks an invariant."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            found = [line for rule in RULES for line in await _broken(connection, rule)]
            found += await _lost(connection, {*accepted, *await _started(connection)})
            found += await _early(connection)
            found += await _doctors(connection)
    finally:
        await connection.close()
    return found


async def _broken(connection: asyncpg.Connection, rule: Rule) -> list[str]:
    rows = await connection.fetch(rule.query)
    return [f"invariant {rule.invariant}, {rule.text}: {dict(row)}" for row in rows[:20]]


async def _doctors(connection: asyncpg.Connection) -> list[str]:
    """What `runr doctor` would say: where all is well, it must find nothing."""
    return [
        f"doctor, invariant {rule.invariant}, {rule.text}: {dict(row)}"
        for rule in doctor.RULES
        for row in await connection.fetch(queries("doctor")[rule.query], doctor.SAMPLE)
    ]


async def _started(connection: asyncpg.Connection) -> list[UUID]:
    """The runs that events say they have started."""
    rows = await connection.fetch("select effects from rt.events")
    return [ulid_uuid(run) for row in rows for run in json.loads(row["effects"])["runs"]]


async def _lost(connection: asyncpg.Connection, accepted: Collection[UUID]) -> list[str]:
    query = "select u.id from unnest($1::uuid[]) u(id) where not exists (select from rt.runs r where r.id = u.id)"
    return [f"invariant 1, an acknowledged run is lost: {row['id']}" for row in await connection.fetch(query, accepted)]


async def _early(connection: asyncpg.Connection) -> list[str]:
    """Sleeps, and waits that ended by their timeout, that ended before it."""
    query = """select run, sid, extract(epoch from t1 - t0) * 1000 as took_ms,
                      coalesce(input::json ->> 'duration_ms', input::json ->> 'timeout_ms')::bigint as wanted_ms
               from rt.steps where kind in ('s', 'e') and status = 'c' and event is null"""
    return [
        f"invariant 5, a timer was early: {row['run']} {row['sid']} {row['took_ms']} ms of {row['wanted_ms']}"
        for row in await connection.fetch(query)
        if row["wanted_ms"] is not None and row["took_ms"] < row["wanted_ms"]
    ]
