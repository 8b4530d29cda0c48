"""W3C `traceparent` as text, the form that travels in NATS headers, gRPC metadata, function requests and run rows."""

from __future__ import annotations

import re

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def inject(context: SpanContext) -> str:
    """The `traceparent` of a span, or "" for none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & TraceFlags.SAMPLED:02x}"


def extract(traceparent: str | None) -> SpanContext | None:
    """The remote span that `traceparent` names; None for an absent or malformed one, which the standard ignores."""
    match = _match(traceparent)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    context = SpanContext(
        trace_id=int(match[2], 16),
        span_id=int(match[3], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(match[4], 16) & TraceFlags.SAMPLED),
    )
    return context if context.is_valid else None


def parent_context(traceparent: str | None) -> Context:
    """A context whose current span is the one that `traceparent` names; an empty context (a new root) for none."""
    remote = extract(traceparent)
    return trace.set_span_in_context(NonRecordingSpan(remote), Context()) if remote else Context()


def is_sampled(traceparent: str | None) -> bool:
    """Whether the span behind `traceparent` is recorded: the decision for a whole run, made once."""
    # Most are not, and are asked for every step: the whole is only looked at when the flag says yes.
    match = _match(traceparent)
    return match is not None and bool(int(match[4], 16) & TraceFlags.SAMPLED) and extract(traceparent) is not None


def _match(traceparent: str | None) -> re.Match[str] | None:
    return _TRACEPARENT.fullmatch(traceparent.strip()) if traceparent else None
