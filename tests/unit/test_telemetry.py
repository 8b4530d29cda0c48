"""Traces: off unless asked for; spans built after the fact join one trace; the sampling decision is made once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

from services.core.runtime.config import load
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.telemetry import Telemetry, start_telemetry
from services.core.runtime.traceparent import extract, inject, is_sampled

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


def recording(**environ: str) -> tuple[Telemetry, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return start_telemetry("ingest", load(TelemetrySettings, environ), exporter=exporter), exporter


def spans(telemetry: Telemetry, exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    telemetry.flush()
    telemetry.close()
    return {span.name: span for span in exporter.get_finished_spans()}


@pytest.mark.parametrize(
    "environ",
    [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}],
)
def test_off_by_default_and_then_a_callers_trace_passes_through(environ: dict[str, str]) -> None:
    telemetry = start_telemetry("ingest", load(TelemetrySettings, environ))
    assert not telemetry.enabled
    assert telemetry.reserve(CALLER) == CALLER
    assert telemetry.reserve(None) == ""
    assert telemetry.record("step", start_ns=1, end_ns=2, parent=CALLER) == CALLER
    telemetry.close()


def test_a_reserved_span_is_recorded_later_with_that_identity_and_its_children_below_it() -> None:
    telemetry, exporter = recording()
    run = telemetry.reserve(CALLER)
    step = telemetry.record("step", start_ns=20, end_ns=30, parent=run)
    telemetry.record("run", start_ns=10, end_ns=40, parent=CALLER, identity=run, error="StepError")
    made = spans(telemetry, exporter)
    above, below = extract(run), extract(step)
    assert above
    assert below
    assert made["run"].context == SpanContext(above.trace_id, above.span_id, False, TraceFlags(1), None)
    assert made["step"].parent
    assert made["run"].parent
    assert made["step"].parent.span_id == above.span_id
    assert made["step"].context
    assert made["step"].context.span_id == below.span_id
    assert inject(made["run"].parent) == CALLER
    assert (made["run"].start_time, made["run"].end_time) == (10, 40)
    assert made["run"].status.status_code is StatusCode.ERROR
    assert made["run"].resource.attributes["service.name"] == "runr-ingest"


def test_the_parents_decision_is_kept_whatever_the_ratio() -> None:
    ratio = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    telemetry, exporter = recording(**ratio)
    kept, root = telemetry.reserve(CALLER), telemetry.reserve(None)
    assert (is_sampled(kept), is_sampled(root), is_sampled(telemetry.reserve(UNSAMPLED))) == (True, False, False)
    telemetry.record("kept", start_ns=1, end_ns=2, parent=CALLER, identity=kept)
    telemetry.record("dropped root", start_ns=1, end_ns=2, parent=None, identity=root)
    telemetry.record("dropped child", start_ns=1, end_ns=2, parent=root)
    assert set(spans(telemetry, exporter)) == {"kept"}


def test_a_sampled_root_stays_sampled_when_it_is_recorded_in_another_process() -> None:
    ingest, first = recording()
    run = ingest.reserve(None)
    assert is_sampled(run)
    executor, second = recording(OTEL_TRACES_SAMPLER="parentbased_always_off")
    executor.record("step", start_ns=1, end_ns=2, parent=run)
    executor.record("run", start_ns=1, end_ns=2, parent=None, identity=run)
    assert set(spans(executor, second)) == {"step", "run"}
    assert set(spans(ingest, first)) == set()


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_traceparent_round_trip(trace_id: int, span_id: int, sampled: bool) -> None:
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(sampled))
    assert extract(inject(context)) == context


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nonsense",
        CALLER.replace("00-", "ff-", 1),
        CALLER + "-more",
        CALLER.upper(),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
    ],
)
def test_a_malformed_traceparent_is_ignored(text: str | None) -> None:
    assert extract(text) is None


def test_a_future_version_is_read_as_far_as_it_is_known() -> None:
    future = extract(CALLER.replace("00-", "01-", 1) + "-more")
    assert future is not None
    assert inject(future) == CALLER
