"""Why a run does not go on, in words, and that `runr dev` tells each reason once."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from services.cli.stalled import Told
from services.core.domain.op import OpError
from services.core.domain.run import Status
from services.core.domain.run_wait import RunWait, Standing, run_wait

DUE = 1_793_448_000_000
UNREACHABLE = OpError("FunctionUnreachable", "connection refused")
TO_WORKERS = {"status": Status.QUEUED, "pooled": True, "ready_ms": 2_000}


@pytest.mark.parametrize(
    ("known", "kind", "message"),
    [
        ({"status": Status.QUEUED}, "executor", "waits for an executor with room"),
        ({"status": Status.QUEUED, "executors": False}, "executor", "waits for an executor: none is alive"),
        (TO_WORKERS | {"executors": False}, "executor", "waits for an executor: none is alive"),
        (TO_WORKERS | {"ready_ms": 1_999}, "worker", "waits for a worker"),
        (TO_WORKERS, "worker", "waits for a worker: none is connected that serves the workflow"),
        (
            TO_WORKERS | {"workers": "others"},
            "worker",
            "waits for a worker: none is connected that serves the workflow, or all are busy",
        ),
        (
            TO_WORKERS | {"workers": "busy", "ready_ms": 0},
            "worker",
            "waits for a worker with room: those that serve the workflow are busy",
        ),
        (
            {"status": Status.PARKED},
            "worker",
            "waits for its worker, whose connection broke; soon another may take it",
        ),
        (
            {"status": Status.BLOCKED, "concurrency": '[{"limit": 2}]'},
            "slot",
            "waits for a slot: the workflow's concurrency is limited to 2",
        ),
        (
            {"status": Status.BLOCKED, "concurrency": '[{"limit": 1, "key": "event.data.user"}, {"limit": 9}]'},
            "slot",
            "waits for a slot: the workflow's concurrency is limited to 1 for each event.data.user and 9",
        ),
        ({"status": Status.BLOCKED}, "slot", "waits for a slot: the workflow's concurrency is limited"),
        (
            {"status": Status.RUNNING, "heard_ms": DUE, "now_ms": DUE + 5_000},
            "answer",
            "waits for an answer of the function that executes it, since 2026-10-31T12:00:00Z",
        ),
        (
            {"status": Status.RUNNING, "heard_ms": DUE, "now_ms": DUE + 5_000, "streamed": True},
            "answer",
            "waits for an answer of the worker that executes it, since 2026-10-31T12:00:00Z",
        ),
        ({"status": Status.DELAYED, "due_ms": DUE}, "start", "starts at 2026-10-31T12:00:00Z"),
        (
            {"status": Status.DELAYED, "due_ms": DUE + 1, "attempt": 1, "error": UNREACHABLE},
            "retry",
            "tries again at 2026-10-31T12:00:00.001Z, attempt 2, because of FunctionUnreachable: connection refused",
        ),
    ],
)
def test_what_is_known_is_said(known: dict[str, Any], kind: str, message: str) -> None:
    assert run_wait(Standing(**known)) == RunWait(kind, message)  # type: ignore[arg-type]


def test_a_run_that_goes_on_waits_for_nothing() -> None:
    assert run_wait(Standing(status=Status.RUNNING)) is None
    assert run_wait(Standing(status=Status.RUNNING, heard_ms=DUE, now_ms=DUE + 4_999)) is None


def test_a_long_error_is_cut() -> None:
    error = OpError("Declined", "no " * 5_000)
    wait = run_wait(Standing(status=Status.DELAYED, due_ms=DUE, attempt=1, error=error))
    assert wait is not None
    assert len(wait.message) < 600


def test_each_reason_is_told_once() -> None:
    told = Told()

    def news(run: int, workflow: str, wait: RunWait) -> list[str]:
        return told.news([({"id": UUID(int=run), "tenant": 1, "workflow": workflow}, wait)])

    no_worker = RunWait("worker", "waits for a worker")
    (line,) = news(1, "order", no_worker)
    assert line == "run 00000000000000000000000001 of order waits for a worker"
    assert news(2, "order", no_worker) == []
    assert len(news(3, "pay", no_worker)) == 1
    assert len(news(1, "order", RunWait("retry", "tries again at 1, attempt 2, because of A: b"))) == 1
    assert news(2, "order", RunWait("retry", "tries again at 2, attempt 3, because of A: b")) == []
    assert len(news(2, "order", RunWait("retry", "tries again at 2, attempt 3, because of C: d"))) == 1
    # What a user's code has said is one line.
    (line,) = news(1, "order", RunWait("retry", "tries again at 1, attempt 2, because of A: b\n\x1b[2Jc"))
    assert line.isprintable()
