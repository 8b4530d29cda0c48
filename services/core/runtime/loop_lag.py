"""How long the event loop keeps whoever is to run waiting: the first sign of a process that has too much to do."""

from __future__ import annotations

import asyncio

from services.core.runtime.metric_table import LOOP_LAG
from services.core.runtime.metrics import Metrics

_PERIOD_S = 0.5


async def watch_loop(metrics: Metrics) -> None:
    """Look twice a second, until cancelled."""
    lag = metrics.histogram(LOOP_LAG)
    loop = asyncio.get_running_loop()
    while True:
        asked = loop.time()
        await asyncio.sleep(_PERIOD_S)
        lag.observe(max(0.0, loop.time() - asked - _PERIOD_S))
