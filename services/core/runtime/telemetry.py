"""Traces by OpenTelemetry: one provider per process, set up from the standard OTEL_* variables.

Off unless an exporter is named, and then every helper returns at once. A run's spans are built after the fact from
stored times, so their ids are needed before they exist: `reserve` and `below` give the text of a span to come (the
`traceparent`, and before it the caller's `tracestate`, if there is one; see `traceparent.py`),
and `record` makes that span later, in any process. The sampling decision is in the flags: only `reserve` asks the
sampler, where a request comes in.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Link, NoOpTracer, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from services.core.runtime.preset_ids import PresetIds
from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.traceparent import extract, inject, is_sampled, parent_context

log = logging.getLogger(__name__)

Attribute = str | int | float | bool | Sequence[str]

CLOSE_S = 3.0
"""How long the end of a process may wait for a receiver of spans."""

_SCOPE = "runr"


class Telemetry:
    """The tracer of one process and the helpers around it. `enabled` tells whether anything is exported."""

    def __init__(self, provider: TracerProvider | None, ids: PresetIds, sampler: Sampler) -> None:
        self._provider = provider
        self._ids = ids
        self._sampler = sampler
        self.enabled = provider is not None
        self._tracer: Tracer = provider.get_tracer(_SCOPE) if provider else NoOpTracer()

    @classmethod
    def off(cls) -> Telemetry:
        """Telemetry that records nothing."""
        return cls(None, PresetIds(), ALWAYS_OFF)

    @staticmethod
    def now_ns() -> int:
        """The clock of spans: unix nanoseconds."""
        return time.time_ns()

    def reserve(self, parent: str | None) -> str:
        """The `traceparent` of a span to be recorded later, below `parent` or as a new root, as the sampler decides.

        Traces off: `parent` itself, or "", so that a caller's trace passes through.
        """
        above = extract(parent)
        if not self.enabled:
            return inject(above) if above else ""
        trace_id = above.trace_id if above else self._ids.generate_trace_id()
        decision = self._sampler.should_sample(parent_context(parent), trace_id, "run").decision
        flags = TraceFlags(TraceFlags.SAMPLED if decision is Decision.RECORD_AND_SAMPLE else TraceFlags.DEFAULT)
        return inject(
            SpanContext(
                trace_id,
                self._ids.generate_span_id(),
                is_remote=False,
                trace_flags=flags,
                trace_state=above.trace_state if above else None,
            )
        )

    def below(self, parent: str) -> str:
        """The `traceparent` of a span to be recorded later below `parent`, recorded if `parent` is."""
        above = extract(parent)
        if not self.enabled or above is None:
            return parent
        span_id = self._ids.generate_span_id()
        return inject(
            SpanContext(
                above.trace_id,
                span_id,
                is_remote=False,
                trace_flags=above.trace_flags,
                trace_state=above.trace_state,
            )
        )

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
        link: str | None = None,
    ) -> str:
        """Makes a span after the fact and returns its `traceparent`. Times are unix nanoseconds.

        `identity` is a `traceparent` from `reserve` or `below`, whose flags decide whether the span is recorded;
        without it, those of `parent` do. `error` marks the span as failed with that text. `link` is the `traceparent`
        of a span of another trace that had a part in it.
        """
        if not self.enabled:
            return identity or parent or ""
        own = identity or (self.below(parent) if parent else self.reserve(None))
        wanted = extract(own)
        if wanted is None or not wanted.trace_flags & TraceFlags.SAMPLED:
            return own
        linked = extract(link)
        self._ids.preset(wanted)
        try:
            span = self._tracer.start_span(
                name,
                context=parent_context(parent),
                kind=kind,
                attributes=attributes,
                links=None if linked is None else [Link(linked)],
                start_time=start_ns,
            )
        finally:
            self._ids.preset(None)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error))
        # A clock that was set back must not make a span that ends before it begins.
        span.end(end_time=max(start_ns, end_ns))
        return own

    def follows(self, traceparent: str | None) -> bool:
        """Whether spans below `traceparent` are wanted: the flag check that is all an unsampled run costs."""
        return self.enabled and is_sampled(traceparent)

    def flush(self) -> None:
        """Sends what is buffered; blocks until the receiver has it or has been given up."""
        if self._provider is not None:
            self._provider.force_flush()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Sends what is buffered and stops; blocks for at most `timeout_s`, so call it off the event loop.

        What a receiver has not taken by then is lost: a process must not outlive its grace for its traces.
        """
        provider, self._provider = self._provider, None
        self.enabled = False
        if provider is None:
            return
        # A daemon: the SDK itself waits up to 30 s for a receiver that is away.
        closing = threading.Thread(target=provider.shutdown, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        if closing.is_alive():
            log.warning("the last spans are lost: their receiver does not take them", extra={"waited_s": timeout_s})


def start_telemetry(service: str, settings: TelemetrySettings, *, exporter: SpanExporter | None = None) -> Telemetry:
    """The telemetry of `runr-<service>`. `exporter` replaces the one that the settings name."""
    chosen = exporter or _exporter(settings)
    if chosen is None:
        return Telemetry.off()
    ids = PresetIds()
    # Resource.create adds what OTEL_RESOURCE_ATTRIBUTES holds; what is named here comes first.
    resource = Resource.create(
        {
            "service.name": settings.service_name or f"runr-{service}",
            "service.namespace": "runr",
            "service.instance.id": f"{socket.gethostname()}/{os.getpid()}",
        }
    )
    # What comes to the provider has been decided about.
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, id_generator=ids, shutdown_on_exit=False)
    # Spans wait in a queue of a bounded size and leave by a thread: a receiver that is slow costs spans, never work.
    provider.add_span_processor(BatchSpanProcessor(chosen))
    return Telemetry(provider, ids, _sampler(settings))


def _sampler(settings: TelemetrySettings) -> Sampler:
    roots: dict[str, Sampler] = {
        "always_on": ALWAYS_ON,
        "always_off": ALWAYS_OFF,
        "traceidratio": TraceIdRatioBased(settings.sample_ratio),
    }
    root = roots[settings.sampler.removeprefix("parentbased_")]
    return ParentBased(root) if settings.sampler.startswith("parentbased_") else root


def _exporter(settings: TelemetrySettings) -> SpanExporter | None:
    named = settings.traces_endpoint or settings.endpoint
    wanted = settings.traces_exporter or ("otlp" if named else "none")
    if settings.sdk_disabled or wanted == "none":
        return None
    if wanted == "console":
        return ConsoleSpanExporter()
    # Imported here because a process without traces should not pay for the exporter.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # As the standard has it: the endpoint of one signal is used as it is, the general one gets the signal's path.
    general = f"{settings.endpoint.rstrip('/')}/v1/traces" if settings.endpoint else None
    return OTLPSpanExporter(endpoint=settings.traces_endpoint or general)
