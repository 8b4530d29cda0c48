"""A start over the API, as it is asked for and as it is answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import msgspec

API_START = "runr/api.start"
"""The name of the event that such a run is started by."""


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be started. `data` is JSON text; at most one of `delay_ms` and `at_ms` (unix) is set.

    `id` is the run's, if the caller has made one: asked for again under the same `id`, it is the same start. `again`
    says that this may be so.
    """

    tenant: int
    project: str
    workflow: str
    data: str = "{}"
    idempotency_key: str | None = None
    test: bool = False
    delay_ms: int | None = None
    at_ms: int | None = None
    tags: tuple[str, ...] = ()
    trace: str | None = None
    id: UUID | None = None
    again: bool = False


class FreshRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be known of a run that was stored just now. Times are unix milliseconds: when it was created, when it
    is due if that is later, when its time is over. `key` is its idempotency key, `trace` its trace.
    """

    created_ms: int
    due_ms: int | None
    timeout_ms: int | None
    key: str | None
    trace: str | None


@dataclass(frozen=True, slots=True)
class Started:
    """The run, and whether this call started it (False: the idempotency key led to it).

    `fresh` is there if it was started just now. Otherwise it may have gone on since.
    """

    run: UUID
    is_new: bool
    fresh: FreshRun | None = field(default=None, compare=False)
