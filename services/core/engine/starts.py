"""A run to be started, as the rows the store takes: shared by API starts, events, and invoked children."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from services.core.domain.expression import evaluate, match_and_if
from services.core.domain.json_value import key_text
from services.core.domain.matching import wait_key
from services.core.engine.definitions import WorkflowEntry
from services.core.engine.gates import gates_of
from services.core.store.batch import columns
from services.core.store.commit_item import StartRow, WaitRow
from services.core.store.queries import queries

_KEY_BYTES = 512


def start_row(
    entry: WorkflowEntry,
    *,
    run: UUID,
    source: str,
    event: UUID,
    event_name: str,
    event_ts: int | None,
    event_data: str | None,
    trigger: dict[str, Any],
    idempotency_key: str | None = None,
    test: bool = False,
    parent: UUID | None = None,
    tags: Sequence[str] = (),
    trace: str | None = None,
    delay_ms: int | None = None,
    at_ms: int | None = None,
) -> StartRow:
    """The row of a run of `entry` that the event `trigger` starts.

    `event_data` None: the event's own row holds the data. An explicit idempotency key is a string value of the same
    key space as the definition's expression (engine section 7), so both lead to the same run.
    """
    definition = entry.definition
    gates = gates_of(entry, trigger)
    key = None
    if idempotency_key is not None:
        key = key_text(idempotency_key)
    elif entry.idempotency is not None:
        key = _bounded(key_text(evaluate(entry.idempotency, event=trigger)))
    return StartRow(
        id=run,
        tenant=entry.tenant,
        wf=entry.id,
        project=entry.project,
        source=source,
        event=event,
        event_name=event_name,
        event_ts=event_ts,
        event_data=event_data,
        idem=key,
        test=test,
        parent=parent,
        replay_of=None,
        tags=json.dumps(list(tags)) if tags else "[]",
        version=entry.version,
        trace=trace,
        max_att=definition.max_attempts,
        timeout_ms=definition.timeout_ms,
        delay_ms=delay_ms,
        at_ms=at_ms,
        prio=0,
        gv=gates.version,
        ga=gates.first,
        gb=gates.second,
    )


def _bounded(key: str | None) -> str | None:
    """A key that an index can hold: a longer value (a whole object, say) is known by its digest."""
    if key is None or len(key.encode()) <= _KEY_BYTES:
        return key
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def cancel_waits(entry: WorkflowEntry, run: UUID, trigger: dict[str, Any]) -> list[WaitRow]:
    """The waits through which `cancel_on` events find the run."""
    rows = []
    for cancel_on in entry.definition.cancel_on:
        key = wait_key(cancel_on.event, match_and_if(cancel_on.match, cancel_on.if_), trigger)
        rows.append(
            WaitRow(
                run=run,
                tenant=entry.tenant,
                id=uuid4(),
                kind="x",
                seq=0,
                sid=None,
                name=None,
                fields=None,
                event=cancel_on.event,
                name_h=key.name_h,
                path=key.path,
                path_h=key.path_h,
                val_h=key.val_h,
                cond=key.condition,
                child=None,
                delay_ms=cancel_on.timeout_ms,
                at_ms=None,
                arming=False,
                lookback_ms=None,
            )
        )
    return rows


async def insert_starts(
    connection: asyncpg.Connection, starts: Sequence[StartRow], waits: Sequence[WaitRow]
) -> list[tuple[UUID, bool]]:
    """Start runs in the caller's transaction. For each, the run it leads to and whether it is new (idempotency)."""
    if not starts:
        return []
    rows = await connection.fetch(queries("engine")["start"], *columns(starts, len(StartRow._fields)))
    found = [(UUID(int=row["run"].int), bool(row["is_new"])) for row in rows]
    if waits:
        await connection.execute(queries("engine")["open_waits"], *columns(waits, len(WaitRow._fields)))
    return found
