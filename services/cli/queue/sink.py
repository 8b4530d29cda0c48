"""The sink of the queue bridge as its client sees it: what an answer means for the message (engine section 3)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import aiohttp

from services.cli.queue.address import SinkAddress
from services.cli.queue.entry import Entry

_TIMEOUT_S = 60.0
_MOST_BYTES = 1 << 20
_MOST_SHOWN = 500
_AWAY = frozenset((408, 425, 429, 502, 503, 504))
_NEVER = frozenset((400, 413, 415, 422))
_WRONG_ADDRESS = frozenset((401, 403, 404, 405))


class Outcome(Enum):
    """What became of a message."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """It failed, and may go better."""
    IMPOSSIBLE = "impossible"
    """It will never be taken."""
    AWAY = "away"
    """The engine cannot take any message now."""
    WRONG_ADDRESS = "wrong address"
    """Nothing is taken there."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is for people. `retry_after_s` is what the engine asked for. `duplicate`: it was accepted before."""

    outcome: Outcome
    reason: str = ""
    retry_after_s: float = 0.0
    duplicate: bool = False


class Sink:
    """Delivers messages over HTTP. Use as an async context manager."""

    def __init__(self, address: SinkAddress, *, connections: int, timeout_s: float = _TIMEOUT_S) -> None:
        self._address = address
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections)
        self._session = aiohttp.ClientSession(connector=connector, timeout=self._timeout, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, entry: Entry) -> Verdict:
        """What the engine says to one message. Accepted is only what it has said to the end."""
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        try:
            # A redirect would show the address, which is a secret, to somebody else.
            async with self._session.post(
                self._address.url, data=entry.message(), headers=headers, allow_redirects=False
            ) as answer:
                body = await _body(answer)
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError) as error:
            return Verdict(Outcome.AWAY, f"no answer from {self.host}: {type(error).__name__}")
        return _verdict(answer.status, body, answer.headers.get("Retry-After", ""))

    @property
    def host(self) -> str:
        """Where it delivers, without what is a secret."""
        parts = urlsplit(self._address.url)
        return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """The whole body, or so much of it that the rest does not matter."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MOST_BYTES:
            break
    return b"".join(chunks)


def _verdict(status: int, body: bytes, retry_after: str) -> Verdict:
    if 200 <= status < 300:
        duplicate = _member(body, "duplicate")
        if not isinstance(duplicate, bool):
            # A proxy or another server that says yes to everything would have all messages acknowledged.
            return Verdict(Outcome.WRONG_ADDRESS, f"{status}, but what answers there is no queue bridge")
        return Verdict(Outcome.ACCEPTED, duplicate=duplicate)
    detail = _member(body, "detail")
    reason = f"{status} {detail if isinstance(detail, str) else ''}".strip()[:_MOST_SHOWN]
    if status in _AWAY:
        return Verdict(Outcome.AWAY, reason, float(retry_after) if retry_after.isdecimal() else 0.0)
    if status in _WRONG_ADDRESS or 300 <= status < 400:
        return Verdict(Outcome.WRONG_ADDRESS, reason)
    return Verdict(Outcome.IMPOSSIBLE if status in _NEVER else Outcome.REFUSED, reason)


def _member(body: bytes, name: str) -> object:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value.get(name) if isinstance(value, dict) else None
