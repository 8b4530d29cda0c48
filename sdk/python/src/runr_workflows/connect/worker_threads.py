"""Threads for sync workflows, which block in their step calls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_log = logging.getLogger("runr_workflows")


class WorkerThreads:
    """Runs each job in a thread at once, in one that is idle if there is one.

    They are daemons, unlike those of a ThreadPoolExecutor: code that outlasts the drain must not keep the process.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._count = 0

    def start(self, job: Callable[[], None]) -> None:
        """Runs a job that raises nothing."""
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._jobs.put(job)
                return
            self._count += 1
            name = f"{self._name}-{self._count}"
        threading.Thread(target=self._run, args=(job,), name=name, daemon=True).start()

    def close(self) -> None:
        """Ends the threads that are idle, and the others when their job is done."""
        with self._lock:
            count, self._count = self._count, 0
        for _ in range(count):
            self._jobs.put(None)

    def _run(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            try:
                job()
            except BaseException:
                _log.exception("a thread of the worker failed")
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
