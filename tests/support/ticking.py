"""A scheduler's tickers, running while a test does something."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.scheduler.ticker import Ticker


@asynccontextmanager
async def ticking(*tickers: Ticker) -> AsyncIterator[None]:
    """They run until the block is left, and are drained then."""
    tasks = {asyncio.create_task(ticker.run()) for ticker in tickers}
    try:
        yield
        for ticker in tickers:
            await ticker.drain()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
