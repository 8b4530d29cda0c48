"""The timeline of a run as text: what is told of an attempt that was lost with the process that made it."""

from __future__ import annotations

from typing import Any

import pytest

from services.cli.timeline import steps_shown

LOST = {
    "attempt": 1,
    "error": {"name": "WorkerLost", "message": "the engine process is gone", "stack": None},
    "started_at": "2026-01-01T00:00:01.500Z",
    "ended_at": "2026-01-01T00:00:04.000Z",
    "warning": None,
}


@pytest.mark.parametrize(("step", "said"), [("charge", " in step charge"), (None, "")])
def test_an_attempt_of_the_function_tells_since_when_and_in_which_step(step: str | None, said: str) -> None:
    run: dict[str, Any] = {
        "created_at": "2026-01-01T00:00:00.000Z",
        "steps": [],
        "attempts": [{**LOST, "step_id": step}],
    }
    *_, line = steps_shown(run).splitlines()
    lost = "function attempt 1 failed at 4.00s: WorkerLost: the engine process is gone"
    assert line == f"    {lost} (began at 1.50s{said})"
