"""Rules about failures (protocol sections 3 and 7)."""

from __future__ import annotations

from functools import partial

from services.cli.conformance.execution import Execution
from services.cli.conformance.probe import Answered, Probe
from services.cli.conformance.replay_rules import is_step, output_of
from services.cli.conformance.rule import Rule
from services.cli.conformance.workflows import ERRORS
from services.core.domain.op import OpError, RunFailed, StepFailed

ERROR_NAME = "ConformanceError"

_MESSAGE = 'declined: "4711" – ü'
_AFTER_S = 90


async def _fails(probe: Probe, *, where: str, kind: str) -> None:
    run = Execution.of(ERRORS, where=where, kind=kind, message=_MESSAGE, retry_after=_AFTER_S)
    answered = await probe.execute(run, f"an error of the kind {kind} in the {where}")
    op = answered.op
    if where == "step":
        answered.expect(isinstance(op, StepFailed) and op.id == "risky", "step_failed of risky")
    else:
        answered.expect(isinstance(op, RunFailed), "run_failed")
    assert isinstance(op, StepFailed | RunFailed)
    answered.expect(isinstance(answered.written[0].get("error"), dict), 'an "error" of {"name", "message"}')
    if kind == "plain":
        _expect_error(answered, op.error, ERROR_NAME)
    answered.expect(op.error.message == _MESSAGE, f"the message {_MESSAGE}")
    final = kind == "non_retriable"
    answered.expect(op.non_retriable is final, f"non_retriable {'true' if final else 'false or absent'}")
    answered.expect(op.warning is None, "no field that the engine ignores with a warning")
    after_ms = _AFTER_S * 1000 if kind == "retry_after" else None
    answered.expect(
        op.retry_after_ms == after_ms,
        "no retry_after" if after_ms is None else f"a retry_after that is {_AFTER_S} seconds",
    )


async def _caught(probe: Probe) -> None:
    run = Execution.of(ERRORS, where="step", kind="plain", message="another", catch=True)
    run = run.failed("risky", "CardDeclined", _MESSAGE)
    answered = await probe.execute(run, "risky has failed for good, and the workflow catches that")
    answered.expect(is_step(answered, "compensate"), "step_completed of compensate, the step after the caught error")
    seen = {"name": "CardDeclined", "message": _MESSAGE, "step_id": "risky"}
    answered.expect(output_of(answered) == seen, f"the error as the code sees it: {seen}")
    answered = await probe.execute(run.completed("compensate", '"done"'), "risky has failed, compensate is stored")
    answered.expect(output_of(answered) == seen, f"run_completed with the output {seen}")


async def _uncaught(probe: Probe) -> None:
    run = Execution.of(ERRORS, where="step", kind="plain", message="another", catch=False)
    run = run.failed("risky", "CardDeclined", _MESSAGE)
    answered = await probe.execute(run, "risky has failed for good, and the workflow does not catch that")
    op = answered.op
    answered.expect(isinstance(op, RunFailed) and op.non_retriable, "run_failed that is non_retriable")
    assert isinstance(op, RunFailed)
    _expect_error(answered, op.error, "CardDeclined")
    answered.expect(op.error.message == _MESSAGE, f"the message of the step's error, {_MESSAGE}")


def _expect_error(answered: Answered, error: OpError, name: str) -> None:
    answered.expect(error.name == name, f"an error with the name {name}")


RULES = (
    Rule("error-in-step", 3, partial(_fails, where="step", kind="plain"), ERRORS),
    Rule("error-in-step-non-retriable", 3, partial(_fails, where="step", kind="non_retriable"), ERRORS),
    Rule("error-in-step-retry-after", 3, partial(_fails, where="step", kind="retry_after"), ERRORS),
    Rule("error-in-workflow", 3, partial(_fails, where="workflow", kind="plain"), ERRORS),
    Rule("error-in-workflow-non-retriable", 3, partial(_fails, where="workflow", kind="non_retriable"), ERRORS),
    Rule("error-in-workflow-retry-after", 3, partial(_fails, where="workflow", kind="retry_after"), ERRORS),
    Rule("step-error-caught", 7, _caught, ERRORS),
    Rule("step-error-uncaught", 7, _uncaught, ERRORS),
)
"""In the order in which they are checked."""
