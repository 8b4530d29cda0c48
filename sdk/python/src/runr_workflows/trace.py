"""The W3C trace context of an invocation, as the engine sends it in headers (protocol section 1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

TRACE_HEADERS = ("traceparent", "tracestate")

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def trace_context(find: Callable[[str], str | None]) -> Mapping[str, str]:
    """The trace headers that `find` gives by name. Empty without a well-formed `traceparent`: W3C says to ignore it."""
    parent = find("traceparent")
    if not parent or not _TRACEPARENT.fullmatch(parent.strip()):
        return {}
    return {name: value.strip() for name in TRACE_HEADERS if (value := find(name))}
