"""Following a run by Server-Sent Events: what is sent, where it goes on, and how it ends (engine section 3)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import NotFound, RateLimited, Unavailable
from services.gateway import event_stream
from tests.support.grpc_backend import ADMIN
from tests.support.http_gateway import Client, gateway

LONG_S = 60
PATH = "/api/runs/r/stream"
Change = run_service_pb2.WatchRunResponse


def change(cursor: str, *steps: str, ended: bool = False, output: bytes | None = None) -> Change:
    state = resources_pb2.RUN_STATE_COMPLETED if ended else resources_pb2.RUN_STATE_RUNNING
    made = Change(run=resources_pb2.Run(id="r", state=state, output=output), cursor=cursor, ended=ended)
    for step in steps:
        made.steps.add(id=step, name=step, kind=resources_pb2.STEP_KIND_RUN, state=resources_pb2.STEP_STATE_COMPLETED)
    return made


class Watched:
    """Plays WatchRun: each call gets the next part, which is messages and an error at the end of them."""

    def __init__(self, *parts: Sequence[Change | Exception | asyncio.Event]) -> None:
        self._parts = iter(parts)
        self.cursors: list[str] = []
        self.written = 0
        self.ended = asyncio.Event()

    @property
    def method(self) -> Any:
        async def watch(request: Any, context: Any) -> None:
            self.cursors.append(request.cursor)
            try:
                for part in next(self._parts):
                    if isinstance(part, Exception):
                        raise part
                    if isinstance(part, asyncio.Event):
                        await part.wait()
                        continue
                    await context.write(part)
                    self.written += 1
            finally:
                self.ended.set()

        return watch


@dataclass
class Event:
    name: str
    id: str
    data: Any


@asynccontextmanager
async def stream(client: Client, last: str | None = None) -> AsyncIterator[aiohttp.ClientResponse]:
    headers = {"Authorization": f"Bearer {ADMIN}"} | ({} if last is None else {"Last-Event-ID": last})
    timeout = aiohttp.ClientTimeout(total=LONG_S)
    url = f"http://{client.address}{PATH}"
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, headers=headers) as answer:
        yield answer


async def block(answer: aiohttp.ClientResponse) -> list[str] | None:
    """The next lines up to an empty one; None at the end."""
    lines: list[str] = []
    async for line in answer.content:
        text = line.decode().removesuffix("\n")
        if not text:
            return lines
        lines.append(text)
    return None


async def some_event(answer: aiohttp.ClientResponse) -> Event:
    """The next event, over whatever only keeps the stream alive."""
    while (lines := await block(answer)) is not None:
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        if "data" in fields:
            return Event(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
    pytest.fail("the stream has ended")


async def test_changes_are_sent_as_events_until_the_run_ends() -> None:
    watched = Watched([change("", "a"), change("c-1"), change("c-2", "b", ended=True, output=b'{"x":\n1.0}')])
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client) as answer:
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.headers["Cache-Control"] == "no-store"
        assert len(answer.headers["x-trace-id"]) == 32
        assert await block(answer) == ["retry: 1000"]
        first, second, last = [await some_event(answer) for _ in range(3)]
        assert await block(answer) is None
    assert (first.name, first.id, first.data["steps"][0]["id"]) == ("change", "", "a")
    assert (second.name, second.id, second.data["run"]["status"]) == ("change", "c-1", "running")
    assert (last.name, last.id, last.data["run"]["output"]) == ("end", "c-2", {"x": 1.0})
    assert watched.cursors == [""]


async def test_a_client_goes_on_behind_its_last_event_and_is_done_behind_the_end() -> None:
    watched = Watched([change("c-8", ended=True)], [], [change("c-9", ended=True)])
    async with gateway({"run.WatchRun": watched.method}) as client:
        async with stream(client, "c-7") as answer:
            assert (await some_event(answer)).id == "c-8"
        async with stream(client, "c-8") as answer:
            assert (answer.status, await answer.read()) == (204, b"")
        async with stream(client, "never \xe9 mine") as answer:
            assert answer.status == 200
    assert watched.cursors == ["c-7", "c-8", ""]


async def test_a_service_that_goes_away_is_called_again_from_the_last_event_on() -> None:
    watched = Watched(
        [change("c-1", "a"), Unavailable("drains")],
        [change("c-2", "b")],
        [Unavailable("away")],
        [change("c-3", ended=True)],
    )
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client) as answer:
        ids = [(await some_event(answer)).id for _ in range(3)]
        assert await block(answer) is None
    assert ids == ["c-1", "c-2", "c-3"]
    assert watched.cursors == ["", "c-1", "c-2", "c-2"]


async def test_a_service_that_is_being_replaced_refuses_nobody() -> None:
    watched = Watched([Unavailable("drains")], [Unavailable("away")], [change("c-1", ended=True)])
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client, "c-0") as answer:
        assert (await some_event(answer)).id == "c-1"
    assert watched.cursors == ["c-0"] * 3


async def test_one_that_stays_away_ends_the_stream_for_the_client_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_stream, "_PAUSES_S", (0.0, 0.0))
    away = [Unavailable("away")]
    watched = Watched([change("c-1"), *away], away, away)
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client) as answer:
        assert (await some_event(answer)).id == "c-1"
        assert await block(answer) is None


@pytest.mark.parametrize(
    ("error", "status"), [(NotFound("no run"), 404), (RateLimited("too many"), 429), (Unavailable("away"), 503)]
)
async def test_what_is_refused_is_a_problem_as_everywhere(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_FIRST_PAUSES_S", (0.0,))
    async with gateway({"run.WatchRun": Watched([error], [error]).method}) as client:
        (await client.call("GET", PATH)).problem(status)
        (await client.call("GET", PATH, token=None)).problem(401)
        (await client.call("GET", PATH + "?x=1")).problem(422)
        (await client.call("POST", PATH)).problem(405)
        assert (await client.call("HEAD", PATH)).status == 405


async def test_a_silent_stream_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "BEAT_S", 0.02)
    silent = asyncio.Event()
    watched = Watched([change("c-1"), silent, change("c-2", ended=True)])
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client) as answer:
        assert (await some_event(answer)).id == "c-1"
        assert await block(answer) == [": "]
        assert await block(answer) == [": "]
        silent.set()
        assert (await some_event(answer)).id == "c-2"


async def test_a_gateway_that_drains_lets_its_streams_go() -> None:
    watched = Watched([change("c-1"), asyncio.Event()])
    async with gateway({"run.WatchRun": watched.method}) as client, stream(client) as answer:
        assert (await some_event(answer)).id == "c-1"
        async with asyncio.timeout(LONG_S):
            draining = asyncio.create_task(client.http.drain())
            assert await block(answer) is None
            await draining


async def test_who_does_not_read_is_cut_off_and_holds_little() -> None:
    big = change("c-1", output=b'"' + b"x" * 1_000_000 + b'"')
    watched = Watched([big] * 10_000)
    async with gateway({"run.WatchRun": watched.method}, write_timeout_s=0.5) as client, raw_stream(client) as reader:
        async with asyncio.timeout(LONG_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await watched.ended.wait()
    assert watched.written < 100


@asynccontextmanager
async def raw_stream(client: Client) -> AsyncIterator[asyncio.StreamReader]:
    """A connection whose answer is read as little as the test wants."""
    reader, writer = await asyncio.open_connection(client.address.host, client.address.port, limit=1 << 10)
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
