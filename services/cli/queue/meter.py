"""What a consumer counts, at `/metrics` of its process."""

from __future__ import annotations

from services.cli.queue.consumer import QueueConsumer
from services.core.runtime.metrics import Metric, Metrics

ENTRIES = Metric("runr_consumer_entries", "counter", "Entries accounted for since the start, by how.", ("outcome",))
HELD = Metric("runr_consumer_held", "gauge", "Entries that are being delivered, or wait for another delivery.")
AWAY = Metric("runr_consumer_away", "gauge", "1 while the consumer waits for somebody, else 0.", ("whom",))

OF_A_CONSUMER = (ENTRIES, HELD, AWAY)


def watch_consumer(metrics: Metrics, consumer: QueueConsumer) -> None:
    """Tell of a consumer for as long as it lives. A duplicate is an entry that had been accepted before."""
    counts = consumer.counts
    metrics.watch(ENTRIES, lambda: counts.accepted - counts.duplicates, "accepted")
    metrics.watch(ENTRIES, lambda: counts.duplicates, "duplicate")
    metrics.watch(ENTRIES, lambda: counts.buried, "dead")
    metrics.watch(HELD, lambda: consumer.held)
    metrics.watch(AWAY, lambda: int(consumer.redis.is_away), "redis")
    metrics.watch(AWAY, lambda: int(not consumer.gate.is_open), "engine")
