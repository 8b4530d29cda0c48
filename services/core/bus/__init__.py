"""NATS: hints between processes, and the queue streams of projects."""

from __future__ import annotations

import sys

# nats-py imports aiohttp, if it is there, for websockets, which we do not speak: a quarter of a service's start.
_hidden = "aiohttp" not in sys.modules
if _hidden:
    sys.modules["aiohttp"] = None  # type: ignore[assignment]
try:
    import nats.aio.transport  # noqa: F401
finally:
    if _hidden:
        del sys.modules["aiohttp"]
