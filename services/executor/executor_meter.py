"""Tells what an executor holds."""

from __future__ import annotations

from services.core.runtime.metric_table import OWNERS_LOST, SLOTS, SLOTS_TAKEN, WORKER_STREAMS
from services.core.runtime.metrics import Metrics
from services.executor.executor import Executor
from services.executor.worker_stream.sessions import WorkerSessions


def watch_executor(metrics: Metrics, executor: Executor, sessions: WorkerSessions, slots: int) -> None:
    """Tell how many runs it holds of how many, and how many workers are connected."""
    metrics.watch(SLOTS, lambda: slots)
    metrics.watch(SLOTS_TAKEN, lambda: executor.held)
    metrics.watch(OWNERS_LOST, lambda: executor.lives_lost)
    metrics.watch(WORKER_STREAMS, lambda: sum(session.is_connected for session in sessions))
