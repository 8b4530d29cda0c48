"""`runr dev --function URL`: registers a function with the default project and keeps its definitions in step."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from services.cli.api import ApiClient, ApiFailure
from services.cli.archived import archived_lines
from services.cli.failure import Failure
from services.cli.http_url import is_http_url
from services.core.runtime.service import EXIT_USAGE

APP = "/api/projects/default/workflows/app"
SYNC = "/api/projects/default/workflows/sync"

_POLL_S = 3.0


def check_function_url(url: str) -> None:
    """Raises Failure when `url` is not one of HTTP with a host, such as an address alone."""
    if not is_http_url(url):
        raise Failure(f"--function {url}: not a URL; write it with its scheme, as http://127.0.0.1:8001", EXIT_USAGE)


async def register_function(api: ApiClient, url: str) -> Any:
    """Points the default project at `url` and syncs once. Returns the answer of the sync. Raises Failure."""
    await api.call("PATCH", APP, {"endpoint_url": url})
    synced = await api.call("POST", SYNC, {})
    if synced["sync"]["status"] != "synced":
        raise Failure(f"the function at {url} was not synced: {synced['sync']['message']}")
    return synced


async def follow_function(api_url: str, token: str, url: str) -> None:
    """Registers `url` and syncs every few seconds, until cancelled; prints changes and faults, once each."""
    shown = ""
    registered = False
    async with ApiClient(api_url, token) as api:
        while True:
            try:
                if not registered:
                    changed = await api.call("PATCH", APP, {"endpoint_url": url})
                    registered = True
                    _tell(archived_lines(changed["archived"]))
                synced = await api.call("POST", SYNC, {})
                _tell(archived_lines(synced["archived"]))
                names = ", ".join(sorted(workflow["name"] for workflow in synced["workflows"]))
                state = f"function {url}: {synced['sync']['message'] or names or 'no workflows'}"
            except ApiFailure as failure:
                state = f"function {url}: {failure}"
            if state != shown:
                _tell([state])
                shown = state
            await asyncio.sleep(_POLL_S)


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
