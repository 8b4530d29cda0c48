"""Server-Sent Events, read from the bytes of an answer."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event. `id` empty: it has none."""

    name: str
    id: str
    data: str


async def server_events(chunks: AsyncIterable[bytes]) -> AsyncIterator[ServerEvent]:
    """The events of a stream, wherever its bytes are cut. What is cut off at the end is no event."""
    fields: dict[str, list[str]] = {}
    async for line in _lines(chunks):
        if line:
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
            continue
        if "data" in fields:
            name, id = (fields.get(field, [""])[-1] for field in ("event", "id"))
            yield ServerEvent(name or "message", id, "\n".join(fields["data"]))
        fields = {}


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[str]:
    left: list[bytes] = []
    async for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*left, line]).decode(errors="replace").removesuffix("\r")
            left = []
        left.append(rest)
