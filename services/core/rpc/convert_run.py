"""Runs, domain → proto, and the filter of a run list the other way."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import InvalidInput, NotFound
from services.core.domain.op import OpError
from services.core.domain.run_record import (
    AttemptRecord,
    ChildRecord,
    RunFilter,
    RunRecord,
    RunResult,
    StepRecord,
    TriggerRecord,
)
from services.core.domain.run_wait import RunWait
from services.core.rpc.convert import failure, number, timestamp, unix_ms, word
from services.core.runtime.ids import ulid_text, ulid_uuid
from services.core.runtime.traceparent import trace_id


def id_of(text: str, what: str) -> UUID:
    """The id in a request. Raises NotFound for a text that is no id: nothing has it."""
    try:
        return ulid_uuid(text)
    except ValueError:
        raise NotFound(f"there is no {what} {text[:100]!r}") from None


def run(record: RunRecord, *, stacks: bool = True) -> resources_pb2.Run:
    """A run. `stacks` False leaves out the stack of its error, as lists do: it may have 32 KiB."""
    message = resources_pb2.Run(
        id=ulid_text(record.id),
        workflow=record.workflow,
        project=record.project,
        state=_number(resources_pb2.RunState, record.state),
        source=_number(resources_pb2.RunSource, record.source),
        test=record.test,
        attempt=record.attempt,
        tags=record.tags,
        idempotency_key=record.idempotency_key,
        parent_run_id=id_text(record.parent),
        replay_of_run_id=id_text(record.replay_of),
        created_at=timestamp(record.created_ms),
        started_at=timestamp(record.started_ms),
        ended_at=timestamp(record.ended_ms),
        due_at=timestamp(record.due_ms),
        timeout_at=timestamp(record.timeout_ms),
        event=_trigger(record.event),
        output=json_bytes(record.output),
        error=_failure(record.error, stacks),
        trace_id=trace_id(record.trace),
        waiting_for=_run_wait(record.waiting),
    )
    message.attempts.extend(_attempt(attempt) for attempt in record.attempts)
    return message


def step(record: StepRecord) -> resources_pb2.Step:
    """A step."""
    message = resources_pb2.Step(
        id=record.id,
        name=record.name,
        kind=_number(resources_pb2.StepKind, record.kind),
        state=_number(resources_pb2.StepState, record.state),
        output=json_bytes(record.output),
        error=_failure(record.error),
        input=json_bytes(record.input),
        started_at=timestamp(record.started_ms),
        ended_at=timestamp(record.ended_ms),
        wake_at=timestamp(record.wake_ms),
        child_run_id=id_text(record.child),
        timed_out=record.timed_out,
    )
    message.attempts.extend(_attempt(attempt) for attempt in record.attempts)
    if record.wait is not None:
        message.wait.CopyFrom(
            resources_pb2.StepWait(
                event=record.wait.event,
                condition=record.wait.condition,
                timeout_at=timestamp(record.wait.timeout_ms),
                warnings=record.wait.warnings,
            )
        )
    return message


def child(record: ChildRecord) -> resources_pb2.ChildRun:
    """A run that a step waits for, or waited for."""
    return resources_pb2.ChildRun(
        id=ulid_text(record.id),
        workflow=record.workflow,
        step_id=record.step_id,
        state=_number(resources_pb2.RunState, record.state),
    )


def result(record: RunResult) -> run_service_pb2.AwaitRunResponse:
    """Where a run stands, and what came of it."""
    return run_service_pb2.AwaitRunResponse(
        run_id=ulid_text(record.id),
        state=_number(resources_pb2.RunState, record.state),
        ended=record.ended,
        output=json_bytes(record.output),
        error=_failure(record.error),
        ended_at=timestamp(record.ended_ms),
    )


def run_filter(request: run_service_pb2.ListRunsRequest) -> RunFilter:
    """The filter in a list request. Raises InvalidInput for a state that is none and for a time that is none."""
    states = [word(resources_pb2.RunState, state) for state in request.states]
    for place, state in enumerate(states):
        if not state:
            raise InvalidInput.of(f"states[{place}]", f"{request.states[place]} is not a state of a run")
    return RunFilter(
        project=request.project or None,
        workflow=request.workflow or None,
        states=frozenset(states),
        since_ms=unix_ms(request, "since"),
        until_ms=unix_ms(request, "until"),
        query=request.query or None,
        tags=tuple(request.tags),
    )


def id_text(id: UUID | None) -> str | None:
    """The text of an id; None stays None, which leaves the field unset."""
    return None if id is None else ulid_text(id)


def json_bytes(text: str | None) -> bytes | None:
    """JSON text as it travels."""
    return None if text is None else text.encode()


def _trigger(record: TriggerRecord | None) -> resources_pb2.TriggerEvent | None:
    if record is None:
        return None
    data = json_bytes(record.data) or b""
    return resources_pb2.TriggerEvent(id=ulid_text(record.id), name=record.name, data=data, ts=record.ts)


def _run_wait(wait: RunWait | None) -> resources_pb2.RunWait | None:
    if wait is None:
        return None
    return resources_pb2.RunWait(kind=_number(resources_pb2.RunWaitKind, wait.kind), message=wait.message)


def _attempt(record: AttemptRecord) -> resources_pb2.Attempt:
    return resources_pb2.Attempt(
        attempt=record.number,
        error=_failure(record.error),
        started_at=timestamp(record.started_ms),
        ended_at=timestamp(record.ended_ms),
        warning=record.warning,
        step_id=record.step_id,
    )


def _failure(error: OpError | None, stack: bool = True) -> resources_pb2.Failure | None:
    return None if error is None else failure(error.name, error.message, error.stack if stack else None)


def _number(enum: Any, text: str) -> Any:
    return number(enum, text)
