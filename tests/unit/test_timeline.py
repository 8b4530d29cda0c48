"""Runs as text: an attempt that was lost with the process that made it, and what a line of a list tells."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.runs.show import run_row
from services.cli.timeline import steps_shown

LOST = {
    "attempt": 1,
    "error": {"name": "WorkerLost", "message": "the engine process is gone", "stack": None},
    "started_at": "2026-01-01T00:00:01.500Z",
    "ended_at": "2026-01-01T00:00:04.000Z",
    "warning": None,
}


@pytest.mark.parametrize(
    ("step", "began", "said"),
    [
        ("charge", LOST["started_at"], " (began at 1.50s in step charge)"),
        (None, LOST["started_at"], " (began at 1.50s)"),
        ("charge", LOST["ended_at"], " (in step charge)"),
        (None, LOST["ended_at"], ""),
    ],
)
def test_an_attempt_of_the_function_tells_in_which_step_and_since_when_if_that_is_known(
    step: str | None, began: str, said: str
) -> None:
    run: dict[str, Any] = {
        "created_at": "2026-01-01T00:00:00.000Z",
        "steps": [],
        "attempts": [{**LOST, "step_id": step, "started_at": began}],
    }
    *_, line = steps_shown(run).splitlines()
    lost = "function attempt 1 failed at 4.00s: WorkerLost: the engine process is gone"
    assert line == f"  {lost}{said}"


def test_failed_attempts_of_the_function_are_told_between_the_steps_in_the_order_of_time() -> None:
    def at(second: int) -> str:
        return f"2026-01-01T00:00:0{second}.000Z"

    def step(id: str, began: int) -> dict[str, Any]:
        times = {"started_at": at(began), "ended_at": at(began + 1), "wake_at": None}
        told: dict[str, Any] = {"attempts": [], "wait": None, "timed_out": False, "child_run_id": None}
        return {"id": id, "kind": "run", "status": "completed", **times, **told}

    failed = [{**LOST, "attempt": n, "step_id": None, "started_at": at(n), "ended_at": at(n)} for n in (1, 2, 7)]
    run = {"created_at": at(0), "steps": [step("a", 0), step("b", 4)], "attempts": failed}
    _, *lines = steps_shown(run).splitlines()
    assert [line[:20].split()[:3] for line in lines] == [
        ["a"],
        ["function", "attempt", "1"],
        ["function", "attempt", "2"],
        ["b"],
        ["function", "attempt", "7"],
    ]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({}, "k-1"),
        ({"idempotency_key": None}, ""),
        ({"waiting_for": {"kind": "worker", "message": "waits for a worker"}}, "k-1 waits for a worker"),
        (
            {"waiting_for": {"kind": "start", "message": "starts at noon"}, "idempotency_key": None},
            "starts at noon",
        ),
        ({"status": "failed", "error": {"name": "Declined", "message": "no money"}}, "Declined: no money"),
    ],
)
def test_a_list_tells_why_a_run_does_not_go_on(run: dict[str, Any], said: str) -> None:
    whole = {
        **{"id": "r", "workflow": "w", "status": "queued", "created_at": "2026-01-01T00:00:00.000Z"},
        **{"started_at": None, "ended_at": None, "error": None, "idempotency_key": "k-1", "waiting_for": None},
    }
    assert run_row({**whole, **run})[-1] == said
