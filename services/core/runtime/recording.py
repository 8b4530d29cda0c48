"""What records spans: OpenTelemetry's SDK as the settings want it. Imported by processes whose traces are on only."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Tracer

from services.core.runtime.preset_ids import PresetIds
from services.core.runtime.settings import TelemetrySettings

_SCOPE = "runr"


@dataclass(frozen=True, slots=True)
class Recording:
    """The provider of a process, and what it asks for ids and decisions."""

    provider: TracerProvider
    tracer: Tracer
    ids: PresetIds
    sampler: Sampler

    def samples(self, parent: Context, trace_id: int) -> bool:
        """Whether a run below `parent` is recorded."""
        return self.sampler.should_sample(parent, trace_id, "run").decision is Decision.RECORD_AND_SAMPLE


def recording(service: str, settings: TelemetrySettings, exporter: SpanExporter | None) -> Recording:
    """That of `runr-<service>`. `exporter` replaces the one that the settings name."""
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
    provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(settings)))
    return Recording(provider, provider.get_tracer(_SCOPE), ids, _sampler(settings))


def _sampler(settings: TelemetrySettings) -> Sampler:
    roots: dict[str, Sampler] = {
        "always_on": ALWAYS_ON,
        "always_off": ALWAYS_OFF,
        "traceidratio": TraceIdRatioBased(settings.sample_ratio),
    }
    root = roots[settings.sampler.removeprefix("parentbased_")]
    return ParentBased(root) if settings.sampler.startswith("parentbased_") else root


def _exporter(settings: TelemetrySettings) -> SpanExporter:
    if settings.traces_exporter == "console":
        return ConsoleSpanExporter()
    # Imported here because whoever looks at a console should not pay for the exporter.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # As the standard has it: the endpoint of one signal is used as it is, the general one gets the signal's path.
    general = f"{settings.endpoint.rstrip('/')}/v1/traces" if settings.endpoint else None
    return OTLPSpanExporter(endpoint=settings.traces_endpoint or general)
