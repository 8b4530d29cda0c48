"""Traces: off unless asked for; spans built after the fact join one trace; the sampling decision is made once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

from services.core.runtime.config import ConfigError, load
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.telemetry import Telemetry, start_telemetry
from services.core.runtime.traceparent import extract, headers, inject, is_sampled, received

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
    [
        {},
        {"OTEL_SERVICE_NAME": "name", "OTEL_TRACES_SAMPLER": "always_on"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"},
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"},
    ],
)
def test_off_by_default_and_then_a_callers_trace_passes_through(environ: dict[str, str]) -> None:
    telemetry = start_telemetry("ingest", load(TelemetrySettings, environ))
    assert not telemetry.enabled
    assert telemetry.reserve(CALLER) == CALLER
    assert telemetry.reserve(CALLER[:-2] + "03") == CALLER
    assert telemetry.reserve("nonsense") == ""
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


@given(
    st.one_of(
        st.text(max_size=60),
        st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-x)?", fullmatch=True),
    )
)
def test_what_is_sampled_can_be_read(text: str) -> None:
    context = extract(text)
    assert is_sampled(text) is (context is not None and bool(context.trace_flags & TraceFlags.SAMPLED))


STATE = "congo=t61rcWkgMzE,rojo@vendor=00f067aa0ba902b7"


@pytest.mark.parametrize(
    ("tracestate", "kept"),
    [
        (None, ""),
        ("", ""),
        (" , ,", ""),
        (STATE, STATE),
        (" congo=t61rcWkgMzE ,\trojo@vendor=00f067aa0ba902b7,", STATE),
        ("a=x y!~", "a=x y!~"),
        ("a=", ""),
        ("a", ""),
        ("A=1", ""),
        ("1a=1", ""),
        ("1a@v=1", "1a@v=1"),
        ("a=1=2", ""),
        ("a=\u00fc", ""),
        ("a=1\nb=2", ""),
        ("a=1,a=2", ""),
        (f"{'k' * 257}=1", ""),
        (f"a={'v' * 257}", ""),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        (
            f"a=1,long={'v' * 200},b={'v' * 110},c={'v' * 110},d={'v' * 110}",
            f"a=1,b={'v' * 110},c={'v' * 110},d={'v' * 110}",
        ),
        (
            ",".join(f"k{number}={'v' * 100}" for number in range(6)),
            ",".join(f"k{number}={'v' * 100}" for number in range(4)),
        ),
    ],
)
def test_a_tracestate_is_kept_as_the_standard_wants_it(tracestate: str | None, kept: str) -> None:
    text = received(CALLER, tracestate)
    assert text == (f"{kept} {CALLER}" if kept else CALLER)
    assert headers(text) == ({"traceparent": CALLER, "tracestate": kept} if kept else {"traceparent": CALLER})
    assert len(kept) <= 512


@pytest.mark.parametrize("traceparent", [None, "", "nonsense", f"congo=1 {CALLER}", f"{CALLER} {CALLER}"])
def test_without_a_good_traceparent_there_is_no_tracestate(traceparent: str | None) -> None:
    assert received(traceparent, STATE) is None
    assert headers(None) == headers("") == {}


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("caller", [CALLER, UNSAMPLED])
def test_the_tracestate_goes_along_to_every_span_below(
    enabled: bool, caller: str, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry, exporter = recording() if enabled else (Telemetry.off(), InMemorySpanExporter())
    run = telemetry.reserve(received(caller, STATE))
    step = telemetry.below(run)
    assert headers(run)["tracestate"] == headers(step)["tracestate"] == STATE
    assert (is_sampled(run), is_sampled(step)) == (caller == CALLER, caller == CALLER)
    assert run.endswith(caller[-2:])  # by which the store finds those that are sampled
    telemetry.record("step", start_ns=1, end_ns=2, parent=run, identity=step)
    exported = [span.context.trace_state.to_header() for span in spans(telemetry, exporter).values() if span.context]
    assert exported == [STATE] * (enabled and caller == CALLER)
    assert caplog.records == []


@given(st.text(max_size=80), st.text(alphabet="ab=,@ \t1_*/-~", max_size=600))
def test_whatever_comes_in_is_readable_or_dropped(strange: str, close: str) -> None:
    for tracestate in (strange, close):
        text = received(CALLER, tracestate)
        assert text is not None
        context = extract(text)
        assert context is not None
        assert inject(context) == text


def test_a_link_leads_to_another_trace_and_a_malformed_one_nowhere() -> None:
    telemetry, exporter = recording()
    run = telemetry.reserve(None)
    telemetry.record("linked", start_ns=1, end_ns=2, parent=run, link=CALLER)
    telemetry.record("alone", start_ns=1, end_ns=2, parent=run, link="nonsense")
    made = spans(telemetry, exporter)
    assert [inject(link.context) for link in made["linked"].links] == [CALLER]
    assert made["alone"].links == ()


def test_a_span_never_ends_before_it_begins() -> None:
    telemetry, exporter = recording()
    telemetry.record("set back", start_ns=10, end_ns=3, parent=None)
    assert spans(telemetry, exporter)["set back"].end_time == 10


@pytest.mark.parametrize("sampler", ["always_on", "always_off", "parentbased_always_off"])
def test_below_a_span_nobody_decides_anew(sampler: str) -> None:
    telemetry, exporter = recording(OTEL_TRACES_SAMPLER=sampler)
    kept, dropped = telemetry.below(CALLER), telemetry.below(UNSAMPLED)
    assert (is_sampled(kept), is_sampled(dropped)) == (True, False)
    telemetry.record("kept", start_ns=1, end_ns=2, parent=CALLER, identity=kept)
    telemetry.record("below kept", start_ns=1, end_ns=2, parent=kept)
    telemetry.record("dropped", start_ns=1, end_ns=2, parent=UNSAMPLED, identity=dropped)
    telemetry.record("below dropped", start_ns=1, end_ns=2, parent=dropped)
    telemetry.record("below nonsense", start_ns=1, end_ns=2, parent="nonsense")
    made = spans(telemetry, exporter)
    assert set(made) == {"kept", "below kept"}
    assert made["below kept"].parent
    assert inject(made["below kept"].parent) == kept


@pytest.mark.parametrize(
    ("sampler", "root", "below_sampled", "below_unsampled"),
    [
        ("parentbased_always_on", True, True, False),
        ("parentbased_always_off", False, True, False),
        ("always_on", True, True, True),
        ("always_off", False, False, False),
    ],
)
def test_the_standard_samplers(sampler: str, root: bool, below_sampled: bool, below_unsampled: bool) -> None:
    telemetry, _ = recording(OTEL_TRACES_SAMPLER=sampler)
    decided = [is_sampled(telemetry.reserve(parent)) for parent in (None, CALLER, UNSAMPLED)]
    assert decided == [root, below_sampled, below_unsampled]
    telemetry.close()


def test_the_name_of_the_service_can_be_chosen() -> None:
    telemetry, exporter = recording(OTEL_SERVICE_NAME="orders-engine")
    telemetry.record("named", start_ns=1, end_ns=2, parent=None)
    assert spans(telemetry, exporter)["named"].resource.attributes["service.name"] == "orders-engine"


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://one:4318/"}, "http://one:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://two/in"}, "http://two/in"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://one", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://two/in"},
            "http://two/in",
        ),
    ],
)
def test_where_spans_go(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], endpoint: str) -> None:
    asked: list[str | None] = []

    class Exporter(InMemorySpanExporter):
        def __init__(self, endpoint: str | None) -> None:
            super().__init__()
            asked.append(endpoint)

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", Exporter)
    start_telemetry("ingest", load(TelemetrySettings, environ)).close()
    assert asked == [endpoint]


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf"),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL must be http/protobuf",
        ),
        ({"OTEL_TRACES_SAMPLER": "some"}, "OTEL_TRACES_SAMPLER must be one of parentbased_always_on"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(TelemetrySettings, environ)


def test_the_protocol_of_traces_comes_before_the_general_one() -> None:
    load(
        TelemetrySettings,
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
    )


class Deaf(SpanExporter):
    """A receiver that takes a connection and never answers, until the test lets go."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.called.set()
        self.let_go.wait(30)
        return SpanExportResult.FAILURE


def test_a_deaf_receiver_holds_up_neither_work_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "64")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "16")
    exporter = Deaf()
    telemetry = start_telemetry("ingest", load(TelemetrySettings, {}), exporter=exporter)
    telemetry.record("first", start_ns=1, end_ns=2, parent=None)
    assert exporter.called.wait(10)
    began = time.monotonic()
    for number in range(5_000):
        telemetry.record(f"span {number}", start_ns=1, end_ns=2, parent=None)
    recorded = time.monotonic()
    telemetry.close(timeout_s=0.2)
    closed = time.monotonic()
    try:
        # Hang guards: whoever waited for the receiver would be here only after its 30 s.
        assert recorded - began < 10
        assert closed - recorded < 10
    finally:
        exporter.let_go.set()
