"""What may be said of a run that the kit starts, and of an event that it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from ..errors import Duration
from .script import Fault


class StartOptions(TypedDict, total=False):
    """How a run is started.

    `event`: the trigger event, by its name and data, in place of a start over the API. `faults` are of this run
    and of those that it invokes.
    """

    event: tuple[str, Mapping[str, Any]] | None
    idempotency_key: str | None
    delay: Duration | None
    at: datetime | str | None
    faults: Sequence[Fault]


class SendOptions(TypedDict, total=False):
    """When an event is sent: at once, `after` a duration, `at` a time, or once a run waits in the step `when_waiting`.

    `id` deduplicates.
    """

    id: str | None
    after: Duration | None
    at: datetime | str | None
    when_waiting: str | None
