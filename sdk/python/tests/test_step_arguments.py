"""Arguments of step calls are refused where they are given, before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, StepArgumentError, StepError, Workflows
from sdk.python.tests.engine import FakeEngine, envelope, execute_request

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
    lambda s: s.wait_for_event("a", "order shipped"),
    lambda s: s.wait_for_event("a", "runr/cron"),
    lambda s: s.wait_for_event("a", "x" * 201),
    lambda s: s.wait_for_event("a", "e", match="order_id"),
    lambda s: s.wait_for_event("a", "e", if_="async.data.x = 1"),
    lambda s: s.invoke("a", "app"),
    lambda s: s.invoke("a", "no blanks"),
    lambda s: s.send_event("a", {"name": "order paid"}),
    lambda s: s.send_event("a", {"name": "runr/run.failed"}),
    lambda s: s.send_event("a", {"name": "e", "data": [1]}),
    lambda s: s.send_event("a", {"name": "e", "id": ""}),
    lambda s: s.send_event("a", {"name": "e", "id": "é" * 128}),
    lambda s: s.send_event("a", {"name": "e", "ts": 1.5}),
    lambda s: s.send_event("a", {"name": "e", "ts": -1}),
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


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda s: s.wait_for_event("a", "a b"), "event: 'a b' may hold only letters a–z and A–Z, digits and . _ : / -"),
    (
        lambda s: s.wait_for_event("a", "e", if_="event.x = 1"),
        "if_: at character 9: unexpected '=', in 'event.x = 1'",
    ),
    (lambda s: s.invoke("a", "sync"), "workflow: 'sync' is reserved"),
    (
        lambda s: s.send_event("a", [{"name": "e"}, {"name": "runr/x"}]),
        "events[1].name: names under runr/ are reserved for the platform, not 'runr/x'",
    ),
    (lambda s: s.send_event("a", {"name": "e", "data": [1]}), "events[0].data: an object (dict), not [1]"),
]


@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_the_error_names_field_value_and_what_is_allowed(
    wf: Workflows, engine: FakeEngine, call: Callable[[Any], object], told: str
) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        call(step)

    error = engine.execute("w")["error"]
    assert (error["name"], error["message"]) == ("StepArgumentError", told)


def test_what_a_run_has_passed_stays_as_it_was(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        with pytest.raises(StepError, match="InvalidStep"):
            step.wait_for_event("a", "no blanks")
        return "caught, as before"

    refused = {"a": {"status": "failed", "error": {"name": "InvalidStep", "message": "no"}}}
    assert engine.execute("w", refused)["output"] == "caught, as before"


async def test_async_calls_are_refused_alike(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> str:
        with pytest.raises(StepArgumentError, match="event: 'a b' may hold"):
            await step.wait_for_event("a", "a b")
        return "refused"

    status, body = await wf.handle_request_async(envelope(execute_request("w")), {})
    assert (status, json.loads(body)["ops"][0]["output"]) == (200, "refused")


def test_what_is_none_of_an_event_is_left_out(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        event: Any = {"name": "e", "data": None, "id": None, "ts": None}
        step.send_event("a", event)

    assert engine.execute("w")["events"] == [{"name": "e"}]


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
