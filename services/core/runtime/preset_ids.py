"""Spans whose ids were given away before the spans are made: what OpenTelemetry's SDK needs for that."""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import SpanContext


class PresetIds(IdGenerator):
    """Random ids, except right after `preset`, for the one span that is started next."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next: SpanContext | None = None

    def preset(self, identity: SpanContext | None) -> None:
        """The next span gets this identity; None: random ids again."""
        self._next = identity

    def generate_trace_id(self) -> int:
        """See `IdGenerator`."""
        return self._next.trace_id if self._next else self._random.generate_trace_id()

    def generate_span_id(self) -> int:
        """See `IdGenerator`."""
        return self._next.span_id if self._next else self._random.generate_span_id()
