"""Whether NATS is there, and what was not sent because it was not."""

from __future__ import annotations

from services.core.bus.jetstream import Bus
from services.core.runtime.metric_table import HINTS_DROPPED, NATS_CONNECTED
from services.core.runtime.metrics import Metrics


def watch_bus(metrics: Metrics, bus: Bus) -> None:
    """Tell both of this process's connection."""
    metrics.watch(NATS_CONNECTED, lambda: int(bus.connected))
    metrics.watch(HINTS_DROPPED, lambda: bus.dropped)
