"""Names of events (engine section 6): which may be sent, and which may be listened to. In the engine's words."""

from __future__ import annotations

import re

MAX_NAME = 200
_NAME = re.compile(r"[A-Za-z0-9._:/-]+")
RUN_ENDS = frozenset(f"runr/run.{end}" for end in ("completed", "failed", "cancelled", "timed_out"))
"""The events of the platform that are heard."""


def sender_fault(name: object) -> str | None:
    """Why nobody may send an event of this name; None if one may."""
    if not isinstance(name, str):
        return f"must be a string, not {type(name).__name__}"
    if not 1 <= len(name) <= MAX_NAME:
        return f"must have 1–{MAX_NAME} characters, it has {len(name)}"
    if not _NAME.fullmatch(name):
        return f"{name[:60]!a} may hold only letters a–z and A–Z, digits and . _ : / -"
    return "names under runr/ are reserved for the platform" if name.startswith("runr/") else None


def listener_fault(name: object) -> str | None:
    """Why no trigger, wait or cancel_on may name this event; None if one may."""
    if isinstance(name, str) and name.startswith("runr/"):
        return None if name in RUN_ENDS else f"of the platform's events only {', '.join(sorted(RUN_ENDS))} are heard"
    return sender_fault(name)


def stream_fault(name: object) -> str | None:
    """Why no stream may have this name; None if one may. Its messages come as the event `queue/<name>`."""
    if not isinstance(name, str) or not name:
        return "must be the name of a stream"
    return sender_fault(f"queue/{name}")
