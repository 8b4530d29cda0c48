"""Threads for sync workflows, which block in their step calls, and for sync functions."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any

_log = logging.getLogger("runr_workflows")


class WorkerThreads(Executor):
    """Runs jobs in threads, each at once unless there are `most` of them.

    They are daemons, unlike those of a ThreadPoolExecutor: code that outlasts the drain must not keep the process.
    """

    def __init__(self, name: str, most: float = math.inf) -> None:
        self._name = name
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        """Threads that wait for a job, less jobs that wait for a thread."""
        self._count = 0

    def start(self, job: Callable[[], None]) -> None:
        """Runs a job that raises nothing."""
        with self._lock:
            if self._idle > 0 or self._count >= self._most:
                self._idle -= 1
                self._jobs.put(job)
                return
            self._count += 1
            name = f"{self._name}-{self._count}"
        threading.Thread(target=self._run, args=(job,), name=name, daemon=True).start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As `Executor.submit`."""
        future: Future[Any] = Future()
        self.start(lambda: _fulfil(future, fn, args, kwargs))
        return future

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


def _fulfil(future: Future[Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = fn(*args, **kwargs)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
