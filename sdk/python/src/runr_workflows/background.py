"""Threads behind the blocking entry points: one with an event loop, and a pool for blocking functions."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger("runr_workflows")


class Background:
    """Started at the first use, and anew in a forked child, where the parent's threads do not exist."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the background loop and waits for its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started_loop()).result()

    def executor(self) -> ThreadPoolExecutor:
        """The pool for blocking functions."""
        with self._lock:
            self._forget_after_fork()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._max_threads, thread_name_prefix="runr-step")
            return self._pool

    def close(self) -> None:
        """Stops the loop, cancelling what runs on it, and the pool, without waiting for functions in it."""
        with self._lock:
            self._forget_after_fork()
            loop, thread, pool = self._loop, self._thread, self._pool
            self._loop = self._thread = self._pool = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            atexit.unregister(self.close)
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _started_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            self._forget_after_fork()
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="runr-loop", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop

    def _forget_after_fork(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = self._thread = self._pool = None


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
            break
        except SystemExit:
            _log.exception("a task asked the process to exit; only the task ends")
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
