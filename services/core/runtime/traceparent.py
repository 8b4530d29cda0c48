"""W3C trace context as text, the form in which it is kept with runs and travels within the engine.

That text is a `traceparent`; where the caller sent a `tracestate` too, that comes first, with a blank between them.
Most callers send none, and then nothing is stored or carried for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[^ ]*)?")
# What every sender writes who knows the standard's first version only, and what needs no second look.
_PLAIN = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MEMBER = re.compile(
    r"([a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MOST_MEMBERS = 32
_MOST_CHARACTERS = 512
_LONG_MEMBER = 128


def inject(context: SpanContext) -> str:
    """The text of a span, or "" for none."""
    if not context.is_valid:
        return ""
    own = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & TraceFlags.SAMPLED:02x}"
    return f"{context.trace_state.to_header()} {own}" if context.trace_state else own


def received(traceparent: str | None, tracestate: str | None) -> str | None:
    """The text of what a caller sent in two headers; None where it sent no good `traceparent`.

    A `tracestate` that is not one is dropped, as the standard wants it; one of more than 512 characters is cut to them,
    the longest members first, then the last.
    """
    if traceparent is not None and not tracestate and _PLAIN.fullmatch(traceparent):
        return traceparent
    if traceparent is None or " " in traceparent.strip() or extract(traceparent) is None:
        return None
    state = _checked(tracestate)
    return f"{state} {traceparent.strip()}" if state else traceparent.strip()


def headers(trace: str | None) -> Mapping[str, str]:
    """The headers that carry the text on: `traceparent`, and `tracestate` where there is one."""
    if not trace:
        return {}
    state, _, parent = trace.rpartition(" ")
    return {"traceparent": parent, "tracestate": state} if state else {"traceparent": parent}


def extract(trace: str | None) -> SpanContext | None:
    """The remote span that the text names; None for an absent or malformed one, which the standard ignores."""
    match = _match(trace)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    context = SpanContext(
        trace_id=int(match[2], 16),
        span_id=int(match[3], 16),
        is_remote=True,
        trace_flags=TraceFlags(int(match[4], 16) & TraceFlags.SAMPLED),
        trace_state=_state_of(trace),
    )
    return context if context.is_valid else None


def trace_id(trace: str | None) -> str:
    """The 32 hex digits of the trace; "" where the text names none."""
    plain = None if trace is None else _PLAIN.fullmatch(trace)
    if plain is not None:
        return plain[1]
    context = extract(trace)
    return "" if context is None else f"{context.trace_id:032x}"


def parent_context(trace: str | None) -> Context:
    """A context whose current span is the one that the text names; an empty context (a new root) for none."""
    remote = extract(trace)
    return set_span_in_context(NonRecordingSpan(remote), Context()) if remote else Context()


def is_sampled(trace: str | None) -> bool:
    """Whether the span behind the text is recorded: the decision for a whole run, made once."""
    # Most are not, and are asked for every step: the whole is only looked at when the flag says yes.
    match = _match(trace)
    return match is not None and bool(int(match[4], 16) & TraceFlags.SAMPLED) and extract(trace) is not None


def _match(trace: str | None) -> re.Match[str] | None:
    return _TRACEPARENT.fullmatch(trace.strip().rpartition(" ")[2]) if trace else None


def _state_of(trace: str | None) -> TraceState | None:
    state = trace.strip().rpartition(" ")[0] if trace else ""
    return TraceState.from_header([state]) if state else None


def _checked(tracestate: str | None) -> str:
    """A `tracestate` without what may be left out of it; "" for one that is malformed."""
    members = [stripped for member in (tracestate or "").split(",") if (stripped := member.strip(" \t"))]
    matches = [_MEMBER.fullmatch(member) for member in members]
    keys = {match[1] for match in matches if match is not None}
    if len(keys) < len(members) or len(members) > _MOST_MEMBERS:
        return ""
    if _length(members) > _MOST_CHARACTERS:
        members = [member for member in members if len(member) <= _LONG_MEMBER]
    while _length(members) > _MOST_CHARACTERS:
        members.pop()
    return ",".join(members)


def _length(members: list[str]) -> int:
    return len(",".join(members))
