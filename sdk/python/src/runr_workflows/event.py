"""Events as workflow code sees and sends them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NotRequired, TypedDict


class Event(TypedDict):
    """An event that was received. `id` is the engine's ULID, `ts` unix milliseconds."""

    id: str
    name: str
    data: dict[str, Any]
    ts: int


class OutgoingEvent(TypedDict):
    """An event to send. `id` deduplicates (the engine makes one per run and step), `ts` is unix milliseconds."""

    name: str
    data: NotRequired[dict[str, Any]]
    id: NotRequired[str]
    ts: NotRequired[int | datetime]
