"""A run as it goes on: every change of it, as the API's stream tells it, through restarts of gateways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote

from services.cli.api import AWAY, ApiClient, ApiFailure

AWAY_S = 60.0
"""How long an API that is away is waited for."""

_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """The run, and its steps that have changed since the one before, with all that the API tells of them."""

    run: Mapping[str, Any]
    steps: list[Mapping[str, Any]]
    is_last: bool


async def changes(api: ApiClient, run_id: str) -> AsyncGenerator[Change, None]:
    """The run as it is, then each change, until it has ended. Raises ApiFailure when the API is away for long."""
    path = f"/api/runs/{quote(run_id, safe='')}/stream"
    cursor = ""
    answered = monotonic()
    while True:
        try:
            async with api.stream(path, cursor) as events:
                answered = monotonic()
                async for event in events:
                    answered, cursor = monotonic(), event.id or cursor
                    told = json.loads(event.data)
                    change = Change(told["run"], told["steps"], is_last=event.name == "end")
                    yield change
                    if change.is_last:
                        return
        except ApiFailure as failure:
            if failure.status not in AWAY or monotonic() - answered > AWAY_S:
                raise
        # A server that drains ends its streams, and so does each after a while.
        await asyncio.sleep(_PAUSE_S)
