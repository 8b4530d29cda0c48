"""Carries out `send_event` marks whose executor did not (rulings C13).

A duty of its own: an event that cannot be accepted must not hold up the marks of children.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from services.scheduler.ticker import PeriodicDuty

MIN_AGE_MS = 1_000

SweepSendEvents = Callable[[int], Awaitable[int]]
"""Accepts the events of some marks older than so many milliseconds; how many marks were done."""


class SendEvents(PeriodicDuty):
    """The duty that accepts events which steps have sent."""

    name = "send_events"
    period_s = 1.0

    def __init__(self, sweep: SweepSendEvents) -> None:
        self._sweep = sweep

    async def run_once(self) -> Mapping[str, int]:
        """Accept all there is, in batches. Raises Unavailable."""
        sent = 0
        while done := await self._sweep(MIN_AGE_MS):
            sent += done
        return {"sent": sent}


class RunEvents(SendEvents):
    """The duty that accepts the events of ended runs."""

    name = "run_events"


class FanOut(SendEvents):
    """The duty that carries out what events with very many runs have left to do."""

    name = "fan_out"
