"""Metadata that belongs to one call."""

from __future__ import annotations

import re

Metadata = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[\x21-\x7e]{1,255}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def named(key: str) -> Metadata:
    """Names a write, so that asking again under the same name within a day does not do it again: an answer that was
    lost is told once more.

    `key` has 1 to 255 visible ASCII characters; raises ValueError for another one. Not for streams.
    """
    if not _NAME.fullmatch(key):
        raise ValueError("a key must have 1 to 255 visible ASCII characters")
    return (("idempotency-key", key),)


def traced(traceparent: str) -> Metadata:
    """Makes the call, and the runs that it starts, part of a W3C trace. Raises ValueError for no traceparent."""
    if not _TRACEPARENT.fullmatch(traceparent):
        raise ValueError("not a traceparent")
    return (("traceparent", traceparent),)
