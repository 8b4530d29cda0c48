"""Work on big texts away from the event loop, so that one caller's megabytes hold up neither the heartbeat nor other
callers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

Result = TypeVar("Result")

SMALL_BYTES = 32 * 1024
"""Up to this size a text is read at once: handing it over would cost more."""


class OffLoop:
    """One thread for big work: however many big texts come, they share one thread's turn of the interpreter."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, size: int, work: Callable[..., Result], *args: object, **options: object) -> Result:
        """`work(*args, **options)`: here when `size` bytes are small, else in the thread. Raises what it raises."""
        if size <= SMALL_BYTES:
            return work(*args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *args, **options))

    def close(self) -> None:
        """Let go of the thread; what is running there ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)
