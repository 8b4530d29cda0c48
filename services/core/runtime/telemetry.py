"""Traces by OpenTelemetry: one provider per process, set up from the standard OTEL_* variables.

Off unless an exporter is named, and then every helper returns at once. A run's spans are built after the fact from
stored times, so their ids are needed before they exist: `reserve` and `below` give the text of a span to come (the
`traceparent`, and before it the caller's `tracestate`, if there is one; see `traceparent.py`),
and `record` makes that span later, in any process. The sampling decision is in the flags: only `reserve` asks the
sampler, where a request comes in.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from services.core.runtime.settings import TelemetrySettings
from services.core.runtime.traceparent import extract, inject, is_sampled, parent_context

if TYPE_CHECKING:  # a process without traces should not pay for the SDK
    from opentelemetry.sdk.trace.export import SpanExporter

    from services.core.runtime.recording import Recording

log = logging.getLogger(__name__)

Attribute = str | int | float | bool | Sequence[str]

CLOSE_S = 3.0
"""How long the end of a process may wait for a receiver of spans."""


class Telemetry:
    """The tracer of one process and the helpers around it. `enabled` tells whether anything is exported."""

    def __init__(self, recording: Recording | None) -> None:
        """`recording` None: nothing is recorded."""
        self._recording = recording

    @property
    def enabled(self) -> bool:
        """Whether anything is exported."""
        return self._recording is not None

    @classmethod
    def off(cls) -> Telemetry:
        """Telemetry that records nothing."""
        return cls(None)

    @staticmethod
    def now_ns() -> int:
        """The clock of spans: unix nanoseconds."""
        return time.time_ns()

    def reserve(self, parent: str | None) -> str:
        """The `traceparent` of a span to be recorded later, below `parent` or as a new root, as the sampler decides.

        Traces off: `parent` itself, or "", so that a caller's trace passes through.
        """
        above, recording = extract(parent), self._recording
        if recording is None:
            return inject(above) if above else ""
        trace_id = above.trace_id if above else recording.ids.generate_trace_id()
        wanted = recording.samples(parent_context(parent), trace_id)
        flags = TraceFlags(TraceFlags.SAMPLED if wanted else TraceFlags.DEFAULT)
        return inject(
            SpanContext(
                trace_id,
                recording.ids.generate_span_id(),
                is_remote=False,
                trace_flags=flags,
                trace_state=above.trace_state if above else None,
            )
        )

    def below(self, parent: str) -> str:
        """The `traceparent` of a span to be recorded later below `parent`, recorded if `parent` is."""
        above, recording = extract(parent), self._recording
        if recording is None or above is None:
            return parent
        span_id = recording.ids.generate_span_id()
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
        recording = self._recording
        if recording is None:
            return identity or parent or ""
        own = identity or (self.below(parent) if parent else self.reserve(None))
        wanted = extract(own)
        if wanted is None or not wanted.trace_flags & TraceFlags.SAMPLED:
            return own
        linked = extract(link)
        recording.ids.preset(wanted)
        try:
            span = recording.tracer.start_span(
                name,
                context=parent_context(parent),
                kind=kind,
                attributes=attributes,
                links=None if linked is None else [Link(linked)],
                start_time=start_ns,
            )
        finally:
            recording.ids.preset(None)
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
        if self._recording is not None:
            self._recording.provider.force_flush()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Sends what is buffered and stops; blocks for at most `timeout_s`, so call it off the event loop.

        What a receiver has not taken by then is lost: a process must not outlive its grace for its traces.
        """
        recording, self._recording = self._recording, None
        if recording is None:
            return
        # A daemon: the SDK itself waits up to 30 s for a receiver that is away.
        closing = threading.Thread(target=recording.provider.shutdown, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(timeout_s)
        if closing.is_alive():
            log.warning("the last spans are lost: their receiver does not take them", extra={"waited_s": timeout_s})


def start_telemetry(service: str, settings: TelemetrySettings, *, exporter: SpanExporter | None = None) -> Telemetry:
    """The telemetry of `runr-<service>`. `exporter` replaces the one that the settings name."""
    named = settings.traces_endpoint or settings.endpoint
    wanted = settings.traces_exporter or ("otlp" if named else "none")
    if exporter is None and (settings.sdk_disabled or wanted == "none"):
        return Telemetry.off()
    from services.core.runtime.recording import recording

    return Telemetry(recording(service, settings, exporter))
