"""From claimed rows to leases: what a run has memoized is read once, when it is claimed."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from services.core.domain.envelope import EventInfo, StepsFragment, error_json
from services.core.domain.gate_rule import RunGates
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries, tenant_query
from services.executor.lease import Lease

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ERROR = error_json("Error", "the step failed")


async def load_leases(
    connection: asyncpg.Connection, definitions: DefinitionsCache, rows: Sequence[asyncpg.Record]
) -> list[Lease]:
    """Leases of freshly claimed rows of `rt.live`."""
    leases: list[Lease] = []
    by_tenant: dict[int, list[asyncpg.Record]] = {}
    for row in rows:
        by_tenant.setdefault(row["tenant"], []).append(row)
    known = await definitions.get_many(connection, list(by_tenant))
    for tenant, live in by_tenant.items():
        leases += await _load_tenant(connection, tenant, live, known[tenant])
    return leases


async def _load_tenant(
    connection: asyncpg.Connection, tenant: int, live: list[asyncpg.Record], definitions: TenantDefinitions
) -> list[Lease]:
    ids = [row["id"] for row in live]
    inputs = {row["id"]: row for row in await connection.fetch(tenant_query("executor", "run_inputs", tenant), ids)}
    # Before the results: what is delivered in between is in both, and has its result. The other way it would be in
    # neither, and a step that is asked for again would wait, or start its child, a second time.
    opened = await _load_open(connection, [row["id"] for row in live if row["steps"] > 0 or row["att"] > 0])
    memos, unnamed = await load_memos(connection, tenant, [row["id"] for row in live if row["steps"] > 0])
    failing = await _load_failing(connection, tenant, [row for row in live if row["att"] > row["att_from"]])
    leases = []
    for row in live:
        try:
            lease = _lease(row, inputs[row["id"]], definitions, memos.get(row["id"]), failing.get(row["id"], {}))
            waits = opened.get(row["id"], {})
            lease.open_steps = {sid: kind for sid, kind in waits.items() if sid not in lease.memo.ids}
            leases.append(lease)
        except Exception:
            # One row that cannot be read must not stop the others: nobody here knows it, so the heartbeat lets it go.
            log.exception("run %s cannot be loaded", row["id"])
    for lease in leases:
        lease.unnamed = lease.run in unnamed
    return leases


def _lease(
    live: asyncpg.Record,
    given: asyncpg.Record,
    definitions: TenantDefinitions,
    memo: StepsFragment | None,
    failing: Mapping[str, int],
) -> Lease:
    entry = definitions.workflows[live["wf"]]
    memo = memo or StepsFragment()
    return Lease(
        run=live["id"],
        tenant=live["tenant"],
        epoch=live["epoch"],
        rev=live["rev"],
        mail=live["mail"],
        definitions=definitions,
        entry=entry,
        project=definitions.projects[entry.project],
        source=given["source"],
        event=EventInfo(
            id=ulid_text(given["event"]),
            name=given["event_name"],
            data=given["event_data"] or "{}",
            ts=given["event_ts"],
        ),
        test=given["test"],
        parent=given["parent"],
        affinity=None if live["affinity"] is None else str(live["affinity"]),
        trace=given["trace"],
        started_ms=_unix_ms(live["started"]),
        reached_ms=given["reached_ms"],
        max_attempts=live["max_att"],
        steps=live["steps"],
        size=live["bytes"],
        attempts=live["att"],
        function_failures=live["fn_att"],
        repeats=live["nd"],
        gates=RunGates(live["gv"], live["ga"], live["gb"]),
        memo=memo,
        failing={sid: n for sid, n in failing.items() if sid not in memo.ids},
    )


def _unix_ms(at: datetime) -> int:
    """Rounded as `rt.ms` does: a function is told the time that the API shows."""
    return ((at - _EPOCH) // timedelta(microseconds=1) + 500) // 1_000


async def load_memos(
    connection: asyncpg.Connection, tenant: int, runs: Sequence[UUID]
) -> tuple[dict[UUID, StepsFragment], set[UUID]]:
    """The memoized steps of runs, in step order, and the runs that do not know yet what one of their steps has sent."""
    memos: dict[UUID, StepsFragment] = {}
    unnamed: set[UUID] = set()
    if not runs:
        return memos, unnamed
    for row in await connection.fetch(tenant_query("executor", "memoized", tenant), runs):
        memo = memos.setdefault(row["run"], StepsFragment())
        if row["unnamed"]:
            unnamed.add(row["run"])
        elif row["status"] == "c":
            memo.completed(row["sid"], row["output"] or "null")
        else:
            memo.failed(row["sid"], row["error"] or _NO_ERROR)
    return memos, unnamed


async def _load_open(connection: asyncpg.Connection, runs: Sequence[UUID]) -> dict[UUID, dict[str, str]]:
    opened: dict[UUID, dict[str, str]] = {}
    if runs:
        for row in await connection.fetch(queries("executor")["open_steps"], runs):
            opened.setdefault(row["run"], {})[row["sid"]] = row["kind"]
    return opened


async def _load_failing(
    connection: asyncpg.Connection, tenant: int, rows: Iterable[asyncpg.Record]
) -> dict[UUID, dict[str, int]]:
    failing: dict[UUID, dict[str, int]] = {}
    wanted = list(rows)
    if not wanted:
        return failing
    query = tenant_query("executor", "failing", tenant)
    for row in await connection.fetch(query, [r["id"] for r in wanted], [r["att_from"] for r in wanted]):
        failing.setdefault(row["run"], {})[row["sid"]] = row["failures"]
    return failing
