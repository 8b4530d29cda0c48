"""From claimed rows to leases: what a run has memoized is read once, when it is claimed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import asyncpg

from services.core.domain.envelope import EventInfo, StepsFragment, error_json
from services.core.domain.gate_rule import RunGates
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions
from services.core.runtime.ids import ulid_text
from services.core.store.queries import tenant_query
from services.executor.lease import Lease

T = TypeVar("T")

log = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_ERROR = error_json("Error", "the step failed")


async def load_leases(
    connection: asyncpg.Connection, definitions: DefinitionsCache, rows: Sequence[asyncpg.Record]
) -> list[Lease]:
    """Leases of freshly claimed rows of `rt.live`. What is stored of a run may be in its row (`claim_and_load`)."""
    leases: list[Lease] = []
    rows, whole = [row for row in rows if not _is_whole(row)], [row for row in rows if _is_whole(row)]
    for tenant in dict.fromkeys(row["tenant"] for row in whole):
        theirs = [row for row in whole if row["tenant"] == tenant]
        known = await definitions.at(connection, tenant, theirs[0]["version"])
        leases += _leases(theirs, {row["id"]: row for row in theirs}, known)
    by_tenant: dict[int, list[asyncpg.Record]] = {}
    for row in rows:
        by_tenant.setdefault(row["tenant"], []).append(row)
    for tenant, live in by_tenant.items():
        leases += await _load_tenant(connection, tenant, live, definitions)
    return leases


async def _load_tenant(
    connection: asyncpg.Connection, tenant: int, live: list[asyncpg.Record], definitions: DefinitionsCache
) -> list[Lease]:
    rows = await connection.fetch(
        tenant_query("executor", "load", tenant),
        [row["id"] for row in live],
        [row["steps"] > 0 for row in live],
        [row["steps"] > 0 or row["att"] > 0 for row in live],
        [row["att_from"] if row["att"] > row["att_from"] else None for row in live],
        tenant,
    )
    stored = {row["id"]: row for row in rows}
    known = await definitions.at(connection, tenant, rows[0]["version"] if rows else None)
    return _leases(live, stored, known)


def _is_whole(row: asyncpg.Record) -> bool:
    return row.get("version") is not None


def _leases(
    live: Sequence[asyncpg.Record], stored: Mapping[UUID, asyncpg.Record], known: TenantDefinitions
) -> list[Lease]:
    leases = []
    for row in live:
        try:
            leases.append(_lease(row, stored[row["id"]], known))
        except Exception:
            # One row that cannot be read must not stop the others: nobody here knows it, so the heartbeat lets it go.
            log.exception("run %s cannot be loaded", row["id"])
    return leases


def _lease(live: asyncpg.Record, given: asyncpg.Record, definitions: TenantDefinitions) -> Lease:
    entry = definitions.workflows[live["wf"]]
    memo = _memo(given)
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
        failing=_new(memo, given["failing_sids"], given["failures"]),
        open_steps=_new(memo, given["open_sids"], given["open_kinds"]),
        unnamed=bool(given["unnamed"]),
    )


def _memo(given: asyncpg.Record) -> StepsFragment:
    """The memoized steps, in step order. One that has sent what is not known yet is not among them."""
    memo = StepsFragment()
    for sid, completed, result in zip(
        given["sids"] or (), given["completed"] or (), given["results"] or (), strict=True
    ):
        if completed:
            memo.completed(sid, result or "null")
        else:
            memo.failed(sid, result or _NO_ERROR)
    return memo


def _new(memo: StepsFragment, sids: Sequence[str] | None, found: Sequence[T] | None) -> dict[str, T]:
    """What was found of steps that have no result."""
    return {sid: each for sid, each in zip(sids or (), found or (), strict=True) if sid not in memo.ids}


def _unix_ms(at: datetime) -> int:
    """Rounded as `rt.ms` does: a function is told the time that the API shows."""
    return ((at - _EPOCH) // timedelta(microseconds=1) + 500) // 1_000
