"""The REST API as a test uses it: one client, with one token, of one project."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp

from tests.support.http_gateway import Reply
from tests.support.transports import Transport

END_S = 90.0

_CALL_S = 75.0
_WAIT_S = 20
_POLL_S = 0.02
_LONGEST_POLL_S = 0.25
_SLOWER = 1.25

Json = dict[str, Any]
T = TypeVar("T")


class Rest:
    """Calls a gateway. Use it as an async context manager."""

    def __init__(
        self,
        base: str,
        token: str,
        project: str = "default",
        *,
        tenant: str = "default",
        database_url: str = "",
        worker_urls: Sequence[str] = (),
        transport: Transport = "http",
    ) -> None:
        """`database_url`: where the stack keeps everything, for tests that look there themselves.

        `tenant` is the slug of the token's tenant, `transport` how its apps and the engine reach one another, and
        `worker_urls` where workers connect.
        """
        self.base = base
        self.token = token
        self.project = project
        self.tenant = tenant
        self.database_url = database_url
        self.worker_urls = worker_urls
        self.transport = transport
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_S))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = "",
    ) -> Reply:
        """One exchange, whatever its outcome. `token` None sends none; "" is the client's own."""
        assert self._session is not None
        content = raw if body is None else json.dumps(body).encode()
        given = self.token if token == "" else token
        sent = {"Authorization": f"Bearer {given}"} if given else {}
        data = None if content is None else io.BytesIO(content)
        async with self._session.request(
            method, f"{self.base}/api{path}", data=data, headers={**sent, **(headers or {})}
        ) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of an answer that must be a success."""
        reply = await self.call(method, path, body)
        assert reply.status < 300, f"{method} {path}: {reply.status} {reply.body.decode(errors='replace')[:2_000]}"
        return reply.json

    async def start(self, workflow: str, data: Json | None = None, **options: Any) -> str:
        """Start a run; its id."""
        body = {"data": data or {}, **options}
        return str((await self.ok("POST", f"/projects/{self.project}/workflows/{workflow}/runs", body))["id"])

    async def send(self, name: str, data: Json | None = None, **fields: Any) -> Json:
        """Send one event; what it came to."""
        accepted = await self.ok("POST", "/events", {"name": name, "data": data or {}, **fields})
        result: Json = accepted["events"][0]
        return result

    async def run(self, run: str) -> Json:
        """A run with its steps."""
        found: Json = await self.ok("GET", f"/runs/{run}")
        return found

    async def end(self, run: str, *, timeout_s: float = END_S) -> Json:
        """The run once it has ended, by long polling."""
        deadline = time.monotonic() + timeout_s
        while True:
            result = await self.ok("GET", f"/runs/{run}/result?wait={_WAIT_S}")
            if result["ended"]:
                return await self.run(run)
            assert time.monotonic() < deadline, f"not ended within {timeout_s:g} s: {json.dumps(await self.run(run))}"

    async def completed(self, run: str, *, timeout_s: float = END_S) -> Any:
        """The output of a run that must complete."""
        found = await self.end(run, timeout_s=timeout_s)
        assert found["status"] == "completed", json.dumps(found, indent=1)
        return found["output"]

    async def becomes(self, run: str, holds: Callable[[Json], Any] | str, *, timeout_s: float = END_S) -> Json:
        """The run once it has a status, or something holds of it."""
        wanted = (lambda found: bool(found["status"] == holds)) if isinstance(holds, str) else holds
        return await self.until(lambda: self.run(run), lambda found: bool(wanted(found)), timeout_s=timeout_s)

    async def until(
        self, look: Callable[[], Awaitable[T]], holds: Callable[[T], bool], *, timeout_s: float = END_S
    ) -> T:
        """What `look` finds, once it is as the test wants it. Whoever waits for long looks less often."""
        deadline = time.monotonic() + timeout_s
        pause = _POLL_S
        while True:
            found = await look()
            if holds(found):
                return found
            assert time.monotonic() < deadline, f"not so within {timeout_s:g} s: {found}"
            await asyncio.sleep(pause)
            pause = min(pause * _SLOWER, _LONGEST_POLL_S)

    async def runs(self, query: str = "") -> list[Json]:
        """The first page of the project's runs, newest first."""
        page = await self.ok("GET", f"/projects/{self.project}/runs{query}")
        found: list[Json] = page["data"]
        return found


def steps_of(run: Json) -> dict[str, str]:
    """Step id → status, in step order."""
    return {step["id"]: step["status"] for step in run["steps"]}


def step_of(run: Json, step: str) -> Json:
    """One step of a run."""
    (found,) = [each for each in run["steps"] if each["id"] == step]
    return dict(found)
