"""Spans of invocations: what is below what, which of it failed, and nothing of a run that is not sampled."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from services.core.domain.cause import Answered, Cause, FunctionFailed, Reported
from services.core.domain.op import (
    EventToSend,
    FunctionFault,
    Invoke,
    Op,
    OpError,
    RunFailed,
    SendEvent,
    Sleep,
    StepCompleted,
    StepFailed,
)
from services.core.domain.run import Limits
from services.core.domain.transition import decide
from services.core.engine.send_events import SendMark
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.telemetry import Telemetry, start_telemetry
from services.core.runtime.traceparent import extract, inject
from services.core.store.commit_item import CommitItem, Fenced
from services.executor.lease import Lease
from services.executor.record import commit_item
from services.executor.spans import ExecutorSpans
from tests.support.builders import lease, workflow

START = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = START[:-1] + "0"
NOW = 1_760_000_001_000
BOOM = OpError("Boom", "no", "a stack")

Seen = Mapping[str, str | None]
"""Name → what failed, of spans."""


class Recording:
    """The spans of an executor, kept in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.telemetry = start_telemetry("executor", TelemetrySettings(), exporter=self._exporter)
        self.spans = ExecutorSpans(self.telemetry)
        self._ids = UlidFactory(SystemClock(), random.Random(1))

    @property
    def made(self) -> list[ReadableSpan]:
        """What was recorded."""
        self.telemetry.flush()
        return list(self._exporter.get_finished_spans())

    def invoke(self, held: Lease, cause: Cause, *, took_s: float = 0.0) -> tuple[CommitItem, str | None]:
        """An invocation that ended so; what was committed, and the trace context of the request."""
        with self.spans.invocation(held) as invocation:
            time.sleep(took_s)
            invocation.answered()
            decision = decide(held.view(Limits()), cause, NOW)
            item = invocation.committing(commit_item(held, decision, self._ids))
            invocation.committed()
        return item, invocation.traceparent

    def below(self, parent: str | None) -> Seen:
        """The spans below a `traceparent`."""
        return {span.name: _failure(span) for span in self.made if span.parent and inject(span.parent) == parent}


def _failure(span: ReadableSpan) -> str | None:
    return span.status.description if span.status.status_code is StatusCode.ERROR else None


def named(spans: list[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = [span for span in spans if span.name == name]
    return found


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return inject(context)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def recording() -> Iterator[Recording]:
    made = Recording()
    yield made
    made.telemetry.close()


def done(step_id: str, **fields: Any) -> StepCompleted:
    return StepCompleted(id=step_id, name=step_id, **fields)


def failed(step_id: str, **fields: Any) -> StepFailed:
    return StepFailed(id=step_id, name=step_id, error=BOOM, **fields)


def test_each_step_of_an_answer_is_below_its_invocation(recording: Recording) -> None:
    _, request = recording.invoke(lease(trace=START), Answered((done("a"), done("b"), failed("c"))))
    assert recording.below(START) == {"invoke work": None}
    assert recording.below(request) == {"step a": None, "step b": None, "step c": "Boom: no"}
    invocation = named(recording.made, "invoke work")
    assert traceparent(invocation) == request
    assert attributes(invocation)["runr.opened"] == ("backoff c",)


def test_an_invocation_over_a_stream_has_the_steps_of_all_its_commits(recording: Recording) -> None:
    held = lease(workflow(), workflow("child", id=2), trace=START)
    ids = UlidFactory(SystemClock(), random.Random(3))
    reports: tuple[tuple[Op, ...], ...] = (
        (done("a"),),
        (Invoke(id="ask", name="ask", workflow="child"), Sleep(id="nap", name="nap", for_ms=1_000)),
        (done("b"),),
    )

    def fenced_in_the_end() -> None:
        with invocation:
            for ops in reports:
                invocation.answered()
                decision = decide(held.view(Limits()), Reported(ops, frozenset(), 1.0, executing=True), NOW)
                invocation.committing(commit_item(held, decision, ids))
                if ops is reports[-1]:
                    raise Fenced
                invocation.committed()

    invocation = recording.spans.invocation(held)
    with pytest.raises(Fenced):
        fenced_in_the_end()
    assert recording.below(invocation.traceparent) == {"step a": None, "start child": None}
    seen = attributes(named(recording.made, "invoke work"))
    assert (seen["runr.opened"], seen["runr.fenced"]) == (("invoke ask", "sleep nap"), True)


def test_a_failed_attempt_that_is_final_is_one_span(recording: Recording) -> None:
    _, request = recording.invoke(lease(trace=START), Answered((failed("a", non_retriable=True),)))
    assert recording.below(request) == {"step a": "Boom: no"}
    assert len(recording.made) == 2


def test_steps_end_with_the_answer_and_never_begin_before_their_request(recording: Recording) -> None:
    recording.invoke(lease(trace=START), Answered((done("short", duration_ms=0), done("long", duration_ms=60_000))))
    invocation, short, long = (named(recording.made, name) for name in ("invoke work", "step short", "step long"))
    assert invocation.start_time
    assert invocation.end_time
    assert long.end_time == short.end_time == short.start_time
    assert long.start_time == invocation.start_time
    assert short.end_time
    assert invocation.start_time <= short.end_time <= invocation.end_time


def test_steps_of_one_answer_stand_one_after_another(recording: Recording) -> None:
    ops = (done("a", duration_ms=5), done("b", duration_ms=10), failed("c", duration_ms=3))
    recording.invoke(lease(trace=START), Answered(ops), took_s=0.03)
    a, b, c = (named(recording.made, f"step {name}") for name in "abc")
    assert (a.end_time, b.end_time) == (b.start_time, c.start_time)
    assert [_ms(span) for span in (a, b, c)] == [5, 10, 3]


def _ms(span: ReadableSpan) -> int:
    assert span.start_time
    assert span.end_time
    return (span.end_time - span.start_time) // 1_000_000


@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        (FunctionFailed(FunctionFault("FunctionTimeout", "no answer")), "FunctionTimeout: no answer"),
        (Answered((RunFailed(error=BOOM),)), "Boom: no"),
        (Answered((RunFailed(error=BOOM, non_retriable=True),)), "Boom: no"),
    ],
)
def test_a_failed_function_attempt_fails_its_invocation(recording: Recording, cause: Cause, failure: str) -> None:
    recording.invoke(lease(trace=START), cause)
    assert recording.below(START) == {"invoke work": failure}


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Fenced(), "fenced: the run was not held by this process any more"),
        (asyncio.CancelledError(), "cut off: CancelledError"),
    ],
)
def test_an_invocation_without_a_commit_has_a_span_all_the_same(
    recording: Recording, error: BaseException, failure: str
) -> None:
    held = lease(trace=START)
    decision = decide(held.view(Limits()), Answered((done("a"),)), NOW)
    invocation = recording.spans.invocation(held)

    def interrupted() -> None:
        with invocation:
            invocation.committing(commit_item(held, decision, UlidFactory(SystemClock(), random.Random(2))))
            raise error

    with pytest.raises(type(error)):
        interrupted()
    assert recording.below(START) == {"invoke work": failure}
    assert recording.below(invocation.traceparent) == {}


def test_what_rests_is_named_by_the_invocation_and_recorded_by_who_ends_it(recording: Recording) -> None:
    _, request = recording.invoke(lease(trace=START), Answered((Sleep(id="nap", name="nap", for_ms=1_000),)))
    assert recording.below(request) == {}
    assert attributes(named(recording.made, "invoke work"))["runr.opened"] == ("sleep nap",)


def test_a_child_begins_below_the_invocation_that_started_it(recording: Recording) -> None:
    held = lease(workflow(), workflow("child", id=2), trace=START)
    item, request = recording.invoke(held, Answered((Invoke(id="ask", name="ask", workflow="child"),)))
    (row,) = item.start_rows
    assert recording.below(request) == {"start child": None}
    assert traceparent(named(recording.made, "start child")) == row.trace
    assert row.trace != START


def test_events_that_a_step_sends_begin_below_its_invocation(recording: Recording) -> None:
    op = SendEvent(id="tell", name="tell", events=(EventToSend(name="told"),))
    item, request = recording.invoke(lease(trace=START), Answered((op,)))
    (row,) = item.mark_rows
    assert SendMark.from_json(row.body).trace == request


def test_a_claim_says_how_the_run_was_found(recording: Recording) -> None:
    recording.spans.claimed(lease(trace=START, steps=3), recording.spans.now_ns(), found_by="look")
    assert recording.below(START) == {"claim": None}
    seen = attributes(named(recording.made, "claim"))
    assert (seen["runr.found_by"], seen["runr.steps"]) == ("look", 3)


@pytest.mark.parametrize("trace", [UNSAMPLED, None])
def test_an_unsampled_run_has_no_spans_and_passes_its_trace_on(recording: Recording, trace: str | None) -> None:
    held = lease(workflow(), workflow("child", id=2), trace=trace)
    item, request = recording.invoke(held, Answered((Invoke(id="ask", name="ask", workflow="child"),)))
    recording.spans.claimed(held, recording.spans.now_ns(), found_by="hint")
    assert recording.made == []
    assert request == trace
    assert [row.trace for row in item.start_rows] == [trace]


def test_while_traces_are_off_a_callers_trace_passes_through() -> None:
    spans = ExecutorSpans(Telemetry.off())
    with spans.invocation(lease(trace=START)) as invocation:
        invocation.answered()
    assert invocation.traceparent == START


def test_the_request_of_a_sampled_run_carries_the_invocation_and_not_the_start(recording: Recording) -> None:
    _, first = recording.invoke(lease(trace=START), Answered((done("a"),)))
    _, second = recording.invoke(lease(trace=START), Answered((done("b"),)))
    contexts = [extract(each) for each in (START, first, second)]
    assert len({each.span_id for each in contexts if each}) == 3
    assert {each.trace_id for each in contexts if each} == {contexts[0].trace_id if contexts[0] else 0}
