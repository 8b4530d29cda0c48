"""Spans whose ids were given away before the spans are made: what OpenTelemetry's SDK needs for that."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceState
from opentelemetry.util.types import Attributes


class PresetIds(IdGenerator):
    """Random ids, except right after `preset`, for the one span that is started next."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: SpanContext | None = None

    def preset(self, identity: SpanContext | None) -> None:
        """The next span gets this identity; None: random ids again."""
        self._next = identity

    @property
    def is_preset(self) -> bool:
        """Whether the next span's identity was given away before."""
        return self._next is not None

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        return self._next.trace_id if self._next else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        return self._next.span_id if self._next else self._random.generate_span_id()


class DecidedOnce(Sampler):
    """Asks `inner`, except for a span with a reserved identity: its decision was made when it was reserved."""

    def __init__(self, inner: Sampler, ids: PresetIds) -> None:
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
        """See `Sampler`."""
        if self._ids.is_preset:
            return SamplingResult(Decision.RECORD_AND_SAMPLE, attributes)
        return self._inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """See `Sampler`."""
        return f"DecidedOnce({self._inner.get_description()})"
