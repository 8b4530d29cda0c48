"""From a reported step call to its op on the stream."""

from __future__ import annotations

from datetime import UTC, datetime

from ..calls import StepCall
from ..duration import parse_duration
from ..replay import Report
from .live_invocation import Answer, LiveOp

_RESTING = frozenset({"wait_for_event", "invoke"})


def live_op(step_id: str, report: Report, answer: Answer) -> LiveOp:
    """The op of a step call that waits for `answer`."""
    return LiveOp(report.text.encode(), step_id, answer, report.output is not None, report.failure)


def rests(call: StepCall) -> bool:
    """Whether the step of a call is open for a while: a run that does nothing else lets go of its worker."""
    if call.op == "sleep":
        until = call.fields.get("until")
        if isinstance(until, str):
            return datetime.fromisoformat(until) > datetime.now(UTC)
        return parse_duration(call.fields["duration"]) > 0
    return call.op in _RESTING
