"""Runs and their steps in JSON. The protocol's word for a state is `status`."""

from __future__ import annotations

from typing import Any

import msgspec
from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.rpc import convert
from services.gateway.views.json_parts import FailureView, failure, optional, payload, raw_json, time_text


class AttemptView(msgspec.Struct, kw_only=True):
    """One attempt of a step or of the function; `error` is null for the one that succeeded."""

    attempt: int
    error: FailureView | None
    step_id: str | None
    started_at: str | None
    ended_at: str | None
    warning: str | None


class WaitView(msgspec.Struct, kw_only=True):
    """What a waiting step waits for."""

    event: str | None
    condition: str | None
    timeout_at: str | None
    warnings: list[str]


class StepView(msgspec.Struct, kw_only=True):
    """One step, in step order. `timed_out`: it waited for an event until its time was up, and has no output."""

    id: str
    name: str
    kind: str
    status: str
    output: msgspec.Raw | None
    error: FailureView | None
    input: msgspec.Raw | None
    attempts: list[AttemptView]
    started_at: str | None
    ended_at: str | None
    wake_at: str | None
    wait: WaitView | None
    child_run_id: str | None
    timed_out: bool


class TriggerEventView(msgspec.Struct, kw_only=True):
    """The event that started a run."""

    id: str
    name: str
    data: msgspec.Raw
    ts: int


class ChildView(msgspec.Struct, kw_only=True):
    """A run that an invoke of this one started."""

    id: str
    workflow: str
    step_id: str
    status: str


class RunWaitView(msgspec.Struct, kw_only=True):
    """Why a run does not go on, for programs and for people."""

    kind: str
    message: str


class RunView(msgspec.Struct, kw_only=True):
    """A run. In lists `event` and `output` are null and `attempts` is empty. `waiting_for` is told of runs that
    do not go on, where one is read and in lists.
    """

    id: str
    workflow: str
    project: str
    status: str
    source: str
    test: bool
    attempt: int
    tags: list[str]
    idempotency_key: str | None
    parent_run_id: str | None
    replay_of_run_id: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    due_at: str | None
    timeout_at: str | None
    event: TriggerEventView | None
    output: msgspec.Raw | None
    error: FailureView | None
    attempts: list[AttemptView]
    trace_id: str | None
    waiting_for: RunWaitView | None


class RunDetailView(RunView, kw_only=True):
    """A run with its steps and children."""

    steps: list[StepView]
    children: list[ChildView]


class ResultView(msgspec.Struct, kw_only=True):
    """The result of a run; `ended` false means that it is still active."""

    id: str
    status: str
    ended: bool
    output: msgspec.Raw | None
    error: FailureView | None
    ended_at: str | None


class RunChangeView(msgspec.Struct, kw_only=True):
    """What has changed of a run: the run, and the steps that are not as they were told before. `whole`: these are all
    steps, others that were told of have gone. Until the run has ended its `event` and `output` are null, and its
    `attempts` are those that are new.
    """

    run: RunView
    steps: list[StepView]
    whole: bool


def run_view(run: resources_pb2.Run) -> RunView:
    """A run without its steps."""
    return RunView(**_run_fields(run))


def run_detail_view(response: run_service_pb2.GetRunResponse) -> RunDetailView:
    """A run with its steps and children."""
    return RunDetailView(
        **_run_fields(response.run),
        steps=[step_view(step) for step in response.steps],
        children=[
            ChildView(
                id=child.id,
                workflow=child.workflow,
                step_id=child.step_id,
                status=convert.word(resources_pb2.RunState, child.state),
            )
            for child in response.children
        ],
    )


def run_change_view(response: run_service_pb2.WatchRunResponse) -> RunChangeView:
    """What has changed of a run."""
    steps = [step_view(step) for step in response.steps]
    return RunChangeView(run=run_view(response.run), steps=steps, whole=response.whole)


def step_view(step: resources_pb2.Step) -> StepView:
    """One step."""
    return StepView(
        id=step.id,
        name=step.name,
        kind=convert.word(resources_pb2.StepKind, step.kind),
        status=convert.word(resources_pb2.StepState, step.state),
        output=payload(step, "output"),
        error=failure(step),
        input=payload(step, "input"),
        attempts=[_attempt_view(attempt) for attempt in step.attempts],
        started_at=time_text(step, "started_at"),
        ended_at=time_text(step, "ended_at"),
        wake_at=time_text(step, "wake_at"),
        wait=_wait_view(step),
        child_run_id=optional(step, "child_run_id"),
        timed_out=step.timed_out,
    )


def result_view(response: run_service_pb2.AwaitRunResponse) -> ResultView:
    """The result of a run."""
    return ResultView(
        id=response.run_id,
        status=convert.word(resources_pb2.RunState, response.state),
        ended=response.ended,
        output=payload(response, "output"),
        error=failure(response),
        ended_at=time_text(response, "ended_at"),
    )


def _run_fields(run: resources_pb2.Run) -> dict[str, Any]:
    attempts = run.attempts
    return {
        "id": run.id,
        "workflow": run.workflow,
        "project": run.project,
        "status": convert.word(resources_pb2.RunState, run.state),
        "source": convert.word(resources_pb2.RunSource, run.source),
        "test": run.test,
        "attempt": run.attempt,
        "tags": run.tags[:],
        "idempotency_key": optional(run, "idempotency_key"),
        "parent_run_id": optional(run, "parent_run_id"),
        "replay_of_run_id": optional(run, "replay_of_run_id"),
        "created_at": time_text(run, "created_at"),
        "started_at": time_text(run, "started_at"),
        "ended_at": time_text(run, "ended_at"),
        "due_at": time_text(run, "due_at"),
        "timeout_at": time_text(run, "timeout_at"),
        "event": _trigger_view(run.event) if run.HasField("event") else None,
        "output": payload(run, "output"),
        "error": failure(run),
        "attempts": [_attempt_view(attempt) for attempt in attempts] if attempts else [],
        "trace_id": run.trace_id or None,
        "waiting_for": _run_wait_view(run.waiting_for) if run.HasField("waiting_for") else None,
    }


def _run_wait_view(wait: resources_pb2.RunWait) -> RunWaitView:
    return RunWaitView(kind=convert.word(resources_pb2.RunWaitKind, wait.kind), message=wait.message)


def _trigger_view(event: resources_pb2.TriggerEvent) -> TriggerEventView:
    return TriggerEventView(id=event.id, name=event.name, data=raw_json(event.data), ts=event.ts)


def _attempt_view(attempt: resources_pb2.Attempt) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        error=failure(attempt),
        started_at=time_text(attempt, "started_at"),
        ended_at=time_text(attempt, "ended_at"),
        step_id=optional(attempt, "step_id"),
        warning=optional(attempt, "warning"),
    )


def _wait_view(step: resources_pb2.Step) -> WaitView | None:
    if not step.HasField("wait"):
        return None
    wait = step.wait
    return WaitView(
        event=wait.event or None,
        condition=optional(wait, "condition"),
        timeout_at=time_text(wait, "timeout_at"),
        warnings=list(wait.warnings),
    )
