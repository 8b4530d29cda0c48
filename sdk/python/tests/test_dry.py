"""Dry requests: the code is replayed, nothing is executed, and the answer says what would be (protocol section 4)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, Step, StepError, Workflows
from runr_workflows.middleware import StepInfo, Where
from sdk.python.tests.engine import EVENT, KEY, NOW, envelope, execute_request

ONE = {"status": "completed", "output": 1}


def dry(wf: Workflows, workflow: str = "w", steps: Mapping[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    status, body = wf.handle_request(envelope(execute_request(workflow, steps, dry=True, **fields)), {})
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    assert answer.pop("runr_workflow") == "v1"
    return answer


def would_run(step_id: str, kind: str, name: str | None = None) -> list[dict[str, str]]:
    return [{"op": "would_run", "id": step_id, "name": name or step_id, "kind": kind}]


def test_nothing_is_executed(wf: Workflows) -> None:
    executed: list[str] = []

    @wf.workflow("w", checkpoint={"max_steps": 5})
    def workflow(ctx: Context, step: Step) -> str:
        step.run("add", executed.append, "first")
        step.run("add", executed.append, "second")
        return "end"

    assert dry(wf) == {"ops": would_run("add", "run"), "called": []}
    # Where several ops are allowed, too.
    assert dry(wf, steps={"add": ONE}, max_ops=5) == {
        "ops": would_run("add:1", "run", "add"),
        "called": [{"id": "add", "kind": "run"}],
    }
    assert dry(wf, steps={"add": ONE, "add:1": ONE, "gone": ONE}) == {
        "ops": [{"op": "run_completed", "output": "end"}],
        "called": [{"id": "add", "kind": "run"}, {"id": "add:1", "kind": "run"}],
    }
    assert executed == []


@pytest.mark.parametrize("kind", ["sleep", "sleep_until", "wait_for_event", "invoke", "send_event"])
def test_every_kind_of_step_is_told(wf: Workflows, kind: str) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> Any:
        argument = {"sleep_until": "2030-01-01", "send_event": {"name": "e"}}.get(kind, "1h")
        return getattr(step, kind)("it", argument)

    told = "sleep" if kind == "sleep_until" else kind
    assert dry(wf)["ops"] == would_run("it", told)
    assert dry(wf, steps={"it": ONE}) == {
        "ops": [{"op": "run_completed", "output": None if told == "sleep" else 1}],
        "called": [{"id": "it", "kind": told}],
    }


def test_async_code_is_replayed_alike(wf: Workflows) -> None:
    executed: list[str] = []

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> None:
        async def body(name: str) -> None:
            executed.append(name)

        await asyncio.gather(*(step.run(name, body, name) for name in "abc"))
        await step.sleep("nap", "1h")

    assert dry(wf, steps={"a": ONE, "c": ONE}) == {
        "ops": would_run("b", "run"),
        "called": [{"id": "a", "kind": "run"}, {"id": "c", "kind": "run"}],
    }
    assert dry(wf, steps={"a": ONE, "b": ONE, "c": ONE})["ops"] == would_run("nap", "sleep")
    assert executed == []


def test_code_that_catches_all_does_not_go_on(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> str:
        try:
            step.run("a", int)
        except BaseException:
            step.run("b", int)
        return "swallowed"

    assert dry(wf)["ops"] == would_run("a", "run")


def test_what_the_code_raises_is_told_and_not_logged(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        try:
            step.run("a", int)
        except StepError as error:
            ctx.logger.info("nobody has done this")
            raise ValueError(f"after {error.name}") from None

    caplog.set_level(logging.INFO)
    answer = dry(wf, steps={"a": {"status": "failed", "error": {"name": "Declined", "message": "no"}}})
    (op,) = answer["ops"]
    assert (op["op"], op["error"]["name"], op["error"]["message"]) == ("run_failed", "ValueError", "after Declined")
    assert answer["called"] == [{"id": "a", "kind": "run"}]
    assert caplog.messages == []


def test_a_dry_request_leaves_no_trace_in_what_notices_lost_steps(
    wf: Workflows, caplog: pytest.LogCaptureFixture
) -> None:
    ids = iter(["a", "b", "a", "c"])

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        step.run(next(ids), int)

    for more in ({}, {"dry": True}, {}, {"dry": True}):
        wf.handle_request(envelope(execute_request("w", **more)), {})
    assert caplog.messages == []


def test_only_true_is_dry(wf: Workflows) -> None:
    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        return step.run("a", int)

    for value in ("true", 1, None, False):
        status, body = wf.handle_request(envelope(execute_request("w", dry=value)), {})
        assert (status, json.loads(body)["ops"][0]["op"]) == (200, "step_completed")
        assert "called" not in json.loads(body)


def test_values_are_decoded_by_middleware_and_no_step_hook_is_called() -> None:
    called: list[str] = []

    class Wraps:
        def step_starts(self, step: StepInfo) -> None:
            called.append(step.id)

        def encode(self, value: Any, where: Where) -> Any:
            return {"wrapped": value}

        def decode(self, value: Any, where: Where) -> Any:
            return value["wrapped"]

    wf = Workflows(signing_key=KEY, clock=lambda: NOW, middleware=[Wraps()])

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> int:
        return step.run("a", int) + 1 if step.run("way", int) == 7 else step.run("b", int)

    stored = {"way": {"status": "completed", "output": {"wrapped": 7}}}
    assert dry(wf, steps=stored, event={**EVENT, "data": {"wrapped": {}}})["ops"] == would_run("a", "run")
    assert called == []
