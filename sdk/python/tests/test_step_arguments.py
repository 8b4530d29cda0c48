"""Arguments of step calls are refused where they are given, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from runr_workflows import Context, Step, StepArgumentError, Workflows
from sdk.python.tests.engine import FakeEngine

BAD_CALLS: list[Callable[[Any], object]] = [
    lambda s: s.run("", len, "x"),
    lambda s: s.run(" ", len, "x"),
    lambda s: s.run("a\0b", len, "x"),
    lambda s: s.run("\ud800", len, "x"),
    lambda s: s.run("é" * 101, len, "x"),
    lambda s: s.run(None, len, "x"),
    lambda s: s.run(1, len, "x"),
    lambda s: s.run("a", "not a function"),
    lambda s: s.sleep("a", "10 minutes"),
    lambda s: s.sleep("a", -1),
    lambda s: s.sleep("a", None),
    lambda s: s.sleep("a", True),
    lambda s: s.sleep("a", float("nan")),
    lambda s: s.sleep_until("a", "garbage"),
    lambda s: s.sleep_until("a", 17),
    lambda s: s.wait_for_event("a", ""),
    lambda s: s.wait_for_event("a", "e", timeout=0),
    lambda s: s.wait_for_event("a", "e", match=1),
    lambda s: s.wait_for_event("a", "e", lookback="always"),
    lambda s: s.invoke("a", 1),
    lambda s: s.invoke("a", len),
    lambda s: s.invoke("a", "w", data=[1]),
    lambda s: s.send_event("a", []),
    lambda s: s.send_event("a", [{"name": "e"}] * 101),
    lambda s: s.send_event("a", {"data": {}}),
    lambda s: s.send_event("a", "e"),
    lambda s: s.options(retries=-1),
    lambda s: s.options(retries=21),
    lambda s: s.options(retries=True),
]


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_bad_call_raises_and_uncaught_fails_the_run_for_good(
    wf: Workflows, engine: FakeEngine, call: Callable[[Any], object]
) -> None:
    @wf.workflow("caught")
    def caught(ctx: Context, step: Step) -> str:
        with pytest.raises(StepArgumentError):
            call(step)
        return "refused"

    @wf.workflow("uncaught")
    def uncaught(ctx: Context, step: Step) -> None:
        call(step)

    assert engine.run("caught").output == "refused"
    op = engine.execute("uncaught")
    assert (op["op"], op["non_retriable"]) == ("run_failed", True)


def test_times_and_durations_of_python_are_sent_as_the_protocol_has_them(wf: Workflows, engine: FakeEngine) -> None:
    moment = datetime(2026, 1, 1, 6, 0, 0, 1, tzinfo=UTC)

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.sleep("a", timedelta(milliseconds=1500))
        step.sleep("b", 0.29)
        step.sleep_until("c", moment)
        step.wait_for_event("d", "e", timeout=timedelta(days=1), lookback="5m")
        step.send_event("e", [{"name": "x", "ts": moment}, {"name": "y", "ts": 5, "id": "i"}])

    ops = engine.run("w").ops

    assert ops[0]["duration"] == "1500ms"
    assert ops[1]["duration"] == 0.29
    assert ops[2]["until"] == "2026-01-01T06:00:00.000001Z"
    assert (ops[3]["timeout"], ops[3]["lookback"]) == ("86400000ms", "5m")
    assert ops[4]["events"] == [{"name": "x", "ts": 1767247200000}, {"name": "y", "ts": 5, "id": "i"}]


def test_a_step_without_a_function_is_told_how_to_write_it(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run("id", 5)  # type: ignore[arg-type]

    error = engine.execute("w")["error"]
    assert error["message"] == "step.run needs a function: step.run('id', fn, arg); got int"


@pytest.mark.parametrize(("fn", "name"), [(len, "len"), (partial(len), "partial")])
def test_an_id_that_is_missing_is_told(wf: Workflows, engine: FakeEngine, fn: Any, name: str) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run(fn, "x")  # type: ignore[call-overload, arg-type]

    error = engine.run("w").ops[-1]["error"]
    assert error["message"] == f"step.run needs an id before the function: step.run('{name}', {name}, …)"
