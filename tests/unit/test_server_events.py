"""Server-Sent Events are the same, wherever the bytes of their stream are cut."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.server_events import ServerEvent, server_events

STREAM = (
    "retry: 1000\n\n"
    'event: change\nid: c-1\ndata: {"name": "ü"}\n\n'
    ": \n\n"
    "data: two\ndata: lines\n\n"
    "event: end\r\nid: c-2\r\ndata:{}\r\n\r\n"
    "event: cut\ndata: off\n"
)
EVENTS = [
    ServerEvent("change", "c-1", '{"name": "ü"}'),
    ServerEvent("message", "", "two\nlines"),
    ServerEvent("end", "c-2", "{}"),
]


def read(chunks: list[bytes]) -> list[ServerEvent]:
    async def sent() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def collect() -> list[ServerEvent]:
        return [event async for event in server_events(sent())]

    return asyncio.run(collect())


@given(st.sets(st.integers(1, len(STREAM.encode()) - 1)))
def test_events_are_whole_wherever_they_are_cut(cuts: set[int]) -> None:
    raw = STREAM.encode()
    edges = [0, *sorted(cuts), len(raw)]
    assert read([raw[start:end] for start, end in itertools.pairwise(edges)]) == EVENTS


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_an_event_may_be_long(size: int) -> None:
    (event,) = read([b"data: ", b"x" * size, b"\n\n"])
    assert event.data == "x" * size
