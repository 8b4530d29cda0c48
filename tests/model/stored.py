"""Everything that the database holds of an episode, read at once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import asyncpg

Row = Mapping[str, Any]


class Stored:
    """Everything that the database holds of runs, by run."""

    def __init__(self, tables: Mapping[str, list[Row]]) -> None:
        self.runs = {row["id"]: row for row in tables["runs"]}
        self.ends = {row["run"]: row for row in tables["ends"]}
        self.events = {row["id"]: row for row in tables["events"]}
        self.fires = tables["cron_fire"]
        self.usage = {(row["name"], row["kind"]): row["n"] for row in tables["usage"]}
        """What was counted, by workflow and kind: r runs, s executions of steps."""
        self.steps = _by_run(tables["steps"])
        self.attempts = _by_run(tables["attempts"])


async def read(connection: asyncpg.Connection) -> Stored:
    """Read it in one snapshot."""
    queries = {
        "runs": "select r.*, w.name as workflow, coalesce(r.event_data, e.data) as data from rt.runs r "
        "join rt.workflows w on w.id = r.wf left join rt.events e on e.tenant = r.tenant and e.id = r.event",
        "ends": "select * from rt.ends",
        "events": "select * from rt.events",
        "cron_fire": "select * from rt.cron_fire",
        "steps": "select *, kind::text as kind, status::text as status from rt.steps order by run, seq",
        "attempts": "select * from rt.attempts order by run, n",
        "usage": "select w.name, u.kind::text as kind, sum(u.n)::int as n "
        "from (select tenant, wf, kind, n from rt.usage union all select tenant, wf, kind, n from rt.usage_delta "
        "union all select tenant, wf, 's', uses from rt.live where uses > 0) u "
        "join rt.workflows w on w.tenant = u.tenant and w.id = u.wf group by 1, 2",
    }
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return Stored({table: list(map(dict, await connection.fetch(query))) for table, query in queries.items()})


def _by_run(rows: list[Row]) -> dict[UUID, list[Row]]:
    found: dict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["run"]].append(row)
    return found


def payload(memo: Row) -> tuple[str, Any]:
    """Status and payload of a memoized step, as functions are shown them."""
    if memo["status"] == "c":
        return "completed", json.loads(memo["output"] or "null")
    return "failed", json.loads(memo["error"])


def shown(memo: Row) -> dict[str, Any]:
    """A memoized step as a request shows it."""
    status, value = payload(memo)
    return {"status": status, "output" if status == "completed" else "error": value}


def elapsed_ms(since: Any, until: Any) -> float:
    """Milliseconds between two instants."""
    return float((until - since).total_seconds() * 1000)
