"""A queue bridge that answers whatever a test wants, over real HTTP, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PATH = "/api/internal/workflows/queue/acme/shop/" + "ab" * 20
WAIT_S = 60.0

Answer = Callable[[str, dict[str, Any]], "tuple[int, dict[str, Any]] | int"]


def takes_all(_: str, __: dict[str, Any]) -> int:
    return 200


@dataclass
class Bridge:
    """`answer` says of an entry's id and its fields with which status, and headers, it is answered."""

    url: str = ""
    answer: Answer = takes_all
    posts: list[tuple[str, Any]] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    is_ours: bool = True
    at_once: int = 0
    most_at_once: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.gate.set()

    def hold(self) -> None:
        """From now on nothing is answered until `let_go`."""
        self.gate.clear()

    def let_go(self) -> None:
        """Answer again."""
        self.gate.set()

    async def until(self, holds: Callable[[Bridge], Any]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: holds(self))

    async def handle(self, request: web.Request) -> web.Response:
        """One request, as the engine would be asked."""
        if request.path != PATH:
            return web.json_response({"detail": "this is not the address of a queue bridge"}, status=401)
        message = json.loads(await request.read())
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.posts.append((message["id"], message["fields"]))
        await self._tell()
        try:
            await self.gate.wait()
            said = self.answer(message["id"], message["fields"])
        finally:
            self.at_once -= 1
        status, headers = said if isinstance(said, tuple) else (said, {})
        body: dict[str, Any] = {"detail": f"said {status}"}
        if status == 200 and self.is_ours:
            body = {"id": "01J", "duplicate": self.accepted[message["id"]] > 0}
            self.accepted[message["id"]] += 1
        await self._tell()
        return web.json_response(body, status=status, headers=headers)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


@asynccontextmanager
async def bridge(answer: Answer = takes_all, *, port: int = 0) -> AsyncIterator[Bridge]:
    """A running one."""
    made = Bridge(answer=answer)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{tail:.*}", made.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}{PATH}"
        yield made
    finally:
        made.let_go()
        await runner.cleanup()
