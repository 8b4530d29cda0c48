"""Events as workflow code sees and sends them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NotRequired, TypedDict

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers know it without the package

    Data = TypeVar("Data", bound=Mapping[str, Any], default=dict[str, Any])
else:
    from typing import TypeVar

    Data = TypeVar("Data")


class Event(TypedDict, Generic[Data]):
    """An event that was received. `id` is the engine's ULID, `ts` unix milliseconds.

    `Event[Shipped]` says what its data is taken for, with a TypedDict; without one it is a `dict[str, Any]`. Nobody
    checks it on its way in.
    """

    id: str
    name: str
    data: Data
    ts: int


class OutgoingEvent(TypedDict):
    """An event to send. `id` deduplicates (the engine makes one per run and step), `ts` is unix milliseconds."""

    name: str
    data: NotRequired[dict[str, Any]]
    id: NotRequired[str]
    ts: NotRequired[int | datetime]


EVENT_MEMBERS = tuple(OutgoingEvent.__annotations__)
"""What an event to send may have."""
