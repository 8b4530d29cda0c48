"""Effects: what a decision asks to be written with the new status, as values of a closed union."""

from __future__ import annotations

import msgspec

from services.core.domain.op import EventToSend, OpError


class Memoize(msgspec.Struct, frozen=True, kw_only=True):
    """Store a step's result for good. Exactly one of `output` (JSON text) and `error` is set.

    kind: r run, s sleep, e wait_for_event, i invoke, n send_event.
    """

    id: str
    name: str
    kind: str
    seq: int
    output: str | None = None
    error: OpError | None = None
    input: str | None = None
    duration_ms: int = 0
    attempts: int = 1


class RecordAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a failed attempt in the history. `step_id` None = of the function. `number` counts from 1."""

    step_id: str | None
    number: int
    error: OpError
    note: str | None = None
    duration_ms: int = 0


class OpenWait(msgspec.Struct, frozen=True, kw_only=True):
    """Open a wait, which is also the timer. kind: s sleep, e event, c child, b backoff.

    Times: `delay_ms` from the commit, or `at_ms` (unix), or neither. `lookback_ms`: so far back from the commit; -1: to
    when the run was created.
    """

    kind: str
    id: str
    name: str
    seq: int
    delay_ms: int | None = None
    at_ms: int | None = None
    event: str | None = None
    condition: str | None = None
    lookback_ms: int | None = None
    fields: str | None = None


class StartChild(msgspec.Struct, frozen=True, kw_only=True):
    """Start the run that an OpenWait of kind c with the same step id waits for."""

    id: str
    workflow: str
    data: str


class SendEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Accept these events: durable with the step's result, applied after the commit."""

    id: str
    events: tuple[EventToSend, ...]


class EndRun(msgspec.Struct, frozen=True, kw_only=True):
    """Close the run: its lease, waits, timers and slot go in the same transaction."""

    output: str | None = None
    error: OpError | None = None


Effect = Memoize | RecordAttempt | OpenWait | StartChild | SendEvents | EndRun
