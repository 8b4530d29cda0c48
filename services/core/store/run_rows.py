"""Rows of runs, steps and attempts → the records that are shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from services.core.domain.matching import event_value, wait_warnings
from services.core.domain.op import OpError
from services.core.domain.run import Status
from services.core.domain.run_record import (
    STEP_KINDS,
    STEP_STATES,
    AttemptRecord,
    ChildRecord,
    RunRecord,
    RunResult,
    StepRecord,
    TriggerRecord,
    WaitRecord,
)
from services.core.runtime.ids import ulid_text

Row = Mapping[str, Any]

_WAIT_KINDS = {"s": "sleep", "e": "wait_for_event", "c": "invoke", "b": "run"}
_WAIT_STATES = {"s": "sleeping", "e": "waiting", "c": "waiting", "b": "retrying"}


def plain_uuid(value: UUID | None) -> UUID | None:
    """The driver's own kind of UUID as Python's."""
    return None if value is None else UUID(int=value.int)


def run_record(row: Row) -> RunRecord:
    """A run as lists show it."""
    error = _error(row["error"])
    return RunRecord(
        id=UUID(int=row["id"].int),
        workflow=row["workflow"],
        project=row["project"],
        state=Status(row["status"]).shown,
        source=row["source"],
        test=row["test"],
        attempt=row["attempt"],
        tags=tuple(json.loads(row["tags"])),
        # Stored with the type that the key has in an expression: "s:order-1".
        idempotency_key=None if row["idem"] is None else row["idem"][2:],
        parent=plain_uuid(row["parent"]),
        replay_of=plain_uuid(row["replay_of"]),
        created_ms=row["created_ms"],
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        due_ms=row["due_ms"],
        timeout_ms=row["timeout_ms"],
        error=error,
        trace=row["trace"],
    )


def trigger_record(row: Row, data: str | None) -> TriggerRecord:
    """The event that started a run."""
    return TriggerRecord(id=UUID(int=row["event"].int), name=row["event_name"], data=data, ts=row["event_ts"])


def run_result(id: UUID, row: Row) -> RunResult:
    """Where a run stands, and what came of it."""
    status = Status(row["status"])
    return RunResult(
        id=id,
        state=status.shown,
        ended=status.is_terminal,
        output=row["output"],
        error=_error(row["error"]),
        ended_ms=row["ended_ms"],
    )


def stored_step(row: Row, failed: Sequence[AttemptRecord]) -> StepRecord:
    """A step with a result, or one that was open when its run ended. `failed`: its failed attempts."""
    attempts = tuple(failed)
    if row["kind"] == "r" and row["status"] == "c":
        start, end = row["started_ms"], row["ended_ms"]
        attempts += (AttemptRecord(number=row["att"], error=None, started_ms=start, ended_ms=end, step_id=row["sid"]),)
    return StepRecord(
        id=row["sid"],
        name=row["name"],
        kind=STEP_KINDS[row["kind"]],
        state=STEP_STATES[row["status"]],
        started_ms=failed[0].started_ms if failed else row["started_ms"],
        ended_ms=row["ended_ms"],
        output=row["output"],
        error=_error(row["error"]),
        input=row["input"],
        attempts=attempts,
        child=plain_uuid(row["child"]),
        timed_out=row["kind"] == "e" and row["status"] == "c" and row["output"] is None,
    )


def open_step(row: Row, failed: Sequence[AttemptRecord], trigger: TriggerRecord | None) -> StepRecord:
    """A step that sleeps, waits, or waits for its next attempt. `trigger`: the event that started its run."""
    kind = row["kind"]
    wait = _wait(row, trigger) if kind in ("e", "c") else None
    return StepRecord(
        id=row["sid"],
        name=row["name"] or row["sid"],
        kind=_WAIT_KINDS[kind],
        state=_WAIT_STATES[kind],
        started_ms=failed[0].started_ms if failed else row["created_ms"],
        input=row["fields"],
        attempts=tuple(failed),
        wake_ms=row["due_ms"] if wait is None else None,
        wait=wait,
        child=plain_uuid(row["child"]),
    )


def failed_step(id: str, failed: Sequence[AttemptRecord], run: RunRecord) -> StepRecord:
    """A step whose backoff has passed: only its failed attempts are stored. The end of the run cancels it."""
    return StepRecord(
        id=id,
        name=id,
        kind="run",
        state="retrying" if run.ended_ms is None else "cancelled",
        started_ms=failed[0].started_ms,
        ended_ms=run.ended_ms,
        attempts=tuple(failed),
    )


def attempt_record(row: Row) -> AttemptRecord:
    """A failed attempt."""
    return AttemptRecord(
        number=row["k"],
        error=_error(row["error"]),
        started_ms=row["started_ms"],
        ended_ms=row["ended_ms"],
        warning=row["note"],
        step_id=row["sid"],
    )


def child_record(row: Row) -> ChildRecord:
    """A run that a step waits for, or waited for."""
    return ChildRecord(
        id=UUID(int=row["id"].int),
        workflow=row["workflow"],
        step_id=row["sid"],
        state=Status(row["status"]).shown,
    )


def _error(text: str | None) -> OpError | None:
    if text is None:
        return None
    found = json.loads(text)
    return OpError(found["name"], found["message"], found.get("stack"))


def _wait(row: Row, trigger: TriggerRecord | None) -> WaitRecord:
    condition = _condition(row["fields"])
    warnings: tuple[str, ...] = ()
    if condition is not None and trigger is not None and trigger.data is not None:
        value = event_value(id=ulid_text(trigger.id), name=trigger.name, data=trigger.data, ts=trigger.ts)
        warnings = wait_warnings(condition, value)
    return WaitRecord(event=row["event"] or "", condition=condition, timeout_ms=row["due_ms"], warnings=warnings)


def _condition(fields: str | None) -> str | None:
    """The condition as the author wrote it; the stored one has the run's own values in it."""
    condition: str | None = json.loads(fields).get("if") if fields else None
    return condition
