"""Traces by OpenTelemetry: one provider per process, set up from the standard OTEL_* variables.

Off unless an exporter is named, and then every helper returns at once. A run's spans are built after the fact from
stored times, so their ids are needed before they exist: `reserve` gives the `traceparent` of a span to come, and
`record` makes that span later, in any process. The sampling decision is in the flags, so it is made once, by whoever
reserves the root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    Link,
    NoOpTracer,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    TraceState,
)
from opentelemetry.util.types import Attributes

from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.traceparent import extract, inject, parent_context

Attribute = str | int | float | bool

_SCOPE = "runr"


class _PresetIds(IdGenerator):
    """Random ids, except right after `preset`, for the one span that is started next."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: SpanContext | None = None

    def preset(self, identity: SpanContext | None) -> None:
        self._next = identity

    @property
    def is_preset(self) -> bool:
        return self._next is not None

    def generate_trace_id(self) -> int:
        return self._next.trace_id if self._next else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        return self._next.span_id if self._next else self._random.generate_span_id()


class _DecidedOnce(Sampler):
    """Asks `inner`, except for a span with a reserved identity: its decision was made when it was reserved."""

    def __init__(self, inner: Sampler, ids: _PresetIds) -> None:
        self._inner = inner
        self._ids = ids

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        if self._ids.is_preset:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"DecidedOnce({self._inner.get_description()})"


class Telemetry:
    """The tracer of one process and the helpers around it. `enabled` tells whether anything is exported."""

    def __init__(self, provider: TracerProvider | None, ids: _PresetIds, sampler: Sampler) -> None:
        self._provider = provider
        self._ids = ids
        self._sampler = sampler
        self.enabled = provider is not None
        self.tracer: Tracer = provider.get_tracer(_SCOPE) if provider else NoOpTracer()

    def reserve(self, parent: str | None) -> str:
        """The `traceparent` of a span to be recorded later, below `parent` or as a new root.

        Traces off: `parent` as it came, or "", so a caller's trace passes through untouched.
        """
        if not self.enabled:
            return parent or ""
        above = extract(parent)
        trace_id = above.trace_id if above else self._ids.generate_trace_id()
        decision = self._sampler.should_sample(parent_context(parent), trace_id, "run").decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return inject(SpanContext(trace_id, self._ids.generate_span_id(), is_remote=False, trace_flags=flags))

    def record(
        self,
        name: str,
        *,
        start_ns: int,
        end_ns: int,
        parent: str | None,
        identity: str | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        attributes: Mapping[str, Attribute] | None = None,
        error: str | None = None,
    ) -> str:
        """Makes a span after the fact and returns its `traceparent`. Times are unix nanoseconds.

        `identity` is a `traceparent` from `reserve`; its flags decide whether the span is recorded. `error` marks the
        span as failed with that text.
        """
        if not self.enabled:
            return identity or parent or ""
        wanted = extract(identity)
        if wanted is not None and not wanted.trace_flags & TraceFlags.SAMPLED:
            return identity or ""
        self._ids.preset(wanted)
        try:
            span = self.tracer.start_span(
                name, context=parent_context(parent), kind=kind, attributes=attributes, start_time=start_ns
            )
        finally:
            self._ids.preset(None)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(end_time=end_ns)
        return inject(span.get_span_context())

    def flush(self, timeout_s: float = 5.0) -> None:
        """Sends what is buffered; blocks up to `timeout_s`."""
        if self._provider is not None:
            self._provider.force_flush(round(timeout_s * 1_000))

    def close(self) -> None:
        """Sends what is buffered and stops; blocks, so call it off the event loop."""
        if self._provider is not None:
            self._provider.shutdown()


def start_telemetry(service: str, settings: TelemetrySettings, *, exporter: SpanExporter | None = None) -> Telemetry:
    """The telemetry of `runr-<service>`. `exporter` replaces the one that the settings name."""
    ids = _PresetIds()
    sampler = _DecidedOnce(_sampler(settings), ids)
    chosen = exporter or _exporter(settings)
    if chosen is None:
        return Telemetry(None, ids, sampler)
    # Resource.create lets OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to the name given here.
    resource = Resource.create({"service.name": f"runr-{service}", "service.namespace": "runr"})
    provider = TracerProvider(sampler=sampler, resource=resource, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(chosen))
    return Telemetry(provider, ids, sampler)


def _sampler(settings: TelemetrySettings) -> Sampler:
    roots: dict[str, Sampler] = {
        "parentbased_always_on": ALWAYS_ON,
        "parentbased_always_off": ALWAYS_OFF,
        "parentbased_traceidratio": TraceIdRatioBased(settings.sample_ratio),
    }
    return ParentBased(roots[settings.sampler])


def _exporter(settings: TelemetrySettings) -> SpanExporter | None:
    wanted = settings.traces_exporter or ("otlp" if settings.endpoint else "none")
    if settings.sdk_disabled or wanted == "none":
        return None
    if wanted == "console":
        return ConsoleSpanExporter()
    # Imported here because a process without traces should not pay for the exporter.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    endpoint = f"{settings.endpoint.rstrip('/')}/v1/traces" if settings.endpoint else None
    return OTLPSpanExporter(endpoint=endpoint)
