"""A workflow function on a loopback port, scripted by the test: well-behaved by default, as rude as a test wants.

    async with FakeFunction({"orders": replaying(completed("reserve", {"r": 1}), output="done")}) as function:
        ...function.url, function.key...
        await function.received(2)

A script is called with the decoded request of each `execute` and returns an op, a list of ops, a `Reply` (any status,
headers and bytes), or a `Wire` (which writes to the connection itself). It may be a coroutine function.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from services.core.domain.signature import verify_envelope
from tests.support.listener import Listener

KEY = "wfsk_test_0123456789abcdef"

Request = dict[str, Any]
Op = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A complete HTTP answer. `headers` replace those that would be sent by themselves, None leaves one out."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Wire:
    """Writes what it likes; the connection is closed when it returns."""

    write: Callable[[asyncio.StreamWriter], Awaitable[None]]


Answer = Op | list[Any] | Reply | Wire
Script = Callable[[Request], Answer | Awaitable[Answer]]


@dataclass(frozen=True)
class Received:
    """One request as it came: header names in lower case, the body's bytes, and the request inside, decoded."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    request: Request
    at: float

    @property
    def kind(self) -> str:
        """`execute` or `introspect`."""
        return str(self.request.get("type"))


class FakeFunction:
    """The server; an async context manager. `requests` are those with a good signature, in order of arrival."""

    def __init__(
        self,
        workflows: Mapping[str, Script] | None = None,
        *,
        key: str = KEY,
        definitions: Sequence[Mapping[str, Any]] | None = None,
        introspect: Script | None = None,
        path: str = "/workflows",
        tls: ssl.SSLContext | None = None,
        repeats_ids: bool = False,
    ) -> None:
        """`introspect` answers introspection; without it `definitions` are listed, or the bare names of `workflows`.

        With `repeats_ids`, answers repeat the id of their request, as those of our own SDK do.
        """
        self.workflows: dict[str, Script] = dict(workflows or {})
        self.key = key
        self.definitions = definitions
        self.introspect = introspect
        self.path = path
        self.tls = tls
        self.repeats_ids = repeats_ids
        self.port = 0
        self.requests: list[Received] = []
        self.rejected = 0
        """Requests that were answered 401."""
        self.connections = 0
        """Connections that were opened, ever."""
        self.hangups = 0
        """Connections that the other side closed while an answer was being made."""
        self.script_errors: list[Exception] = []
        """What scripts raised; each was answered as a 500, and the test fails when the server stops."""
        self._changed = asyncio.Condition()
        self._listener = Listener(self._serve)

    @property
    def url(self) -> str:
        """Where the function is served."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{self.path}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
        if self.script_errors and exc is None:
            raise self.script_errors[0]

    async def start(self) -> None:
        """Listen; on the same port again after a `stop`."""
        self.port = await self._listener.start("127.0.0.1", self.port, tls=self.tls)

    async def stop(self) -> None:
        """Refuse connections from now on and cut those that are open."""
        await self._listener.stop()

    async def received(self, count: int, *, timeout_s: float = 10.0) -> list[Received]:
        """Wait until `count` requests have come in all."""
        await self.until(lambda: len(self.requests) >= count, timeout_s=timeout_s)
        return self.requests

    async def until(self, holds: Callable[[], bool], *, timeout_s: float = 10.0) -> None:
        """Wait until something that this server counts is as the test wants it."""
        async with asyncio.timeout(timeout_s), self._changed:
            await self._changed.wait_for(holds)

    def executions(self, workflow: str) -> list[Request]:
        """The execute requests of one workflow."""
        return [each.request for each in self.requests if each.request.get("workflow") == workflow]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while await self._serve_one(reader, writer):
            pass

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read one request and answer it; whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.rstrip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        making = asyncio.ensure_future(self._answer(method, path, headers, body))
        answer = await self._or_hangup(making, reader)
        if answer is None:
            return False
        if isinstance(answer, Wire):
            await self._or_hangup(asyncio.ensure_future(answer.write(writer)), reader)
            return False
        repeated = {name: headers.get(name) for name in ("x-runr-request-id",) if self.repeats_ids}
        writer.write(_encoded(answer, repeated))
        await writer.drain()
        return headers.get("connection", "").lower() != "close"

    async def _or_hangup(self, work: asyncio.Future[Any], reader: asyncio.StreamReader) -> Any:
        """What `work` returns, or None if the other side hangs up before."""
        hangup = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({work, hangup}, return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not isinstance(work.exception(), ConnectionError):
                return work.result()
            async with self._changed:
                self.hangups += 1
                self._changed.notify_all()
            return None
        finally:
            for task in (work, hangup):
                task.cancel()
            await asyncio.gather(work, hangup, return_exceptions=True)

    async def _answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply | Wire:
        decoded = json.loads(body)
        verdict = verify_envelope(decoded, headers.get("x-runr-signature"), [self.key], time.time())
        if not verdict.accepted:
            self.rejected += verdict.status == 401
            return _json_reply({"error": verdict.reason}, verdict.status)
        request = json.loads(decoded["request"])
        async with self._changed:
            self.requests.append(Received(method, path, headers, body, request, time.monotonic()))
            self._changed.notify_all()
        script = self._script(request)
        if script is None:
            return _json_reply({"error": f"workflow {request.get('workflow')!r} is not served here"}, 400)
        try:
            answer = script(request)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:
            self.script_errors.append(error)
            return _json_reply({"error": repr(error)}, 500)
        if isinstance(answer, Reply | Wire):
            return answer
        return _json_reply({"runr_workflow": "v1", "ops": answer if isinstance(answer, list) else [answer]})

    def _script(self, request: Request) -> Script | None:
        if request["type"] == "introspect":
            return self.introspect or self._introspect
        return self.workflows.get(request["workflow"])

    def _introspect(self, request: Request) -> Reply:
        definitions = self.definitions
        if definitions is None:
            definitions = [{"name": name} for name in self.workflows]
        sdk = {"name": "fake", "language": "python", "version": "0"}
        return _json_reply({"runr_workflow": "v1", "sdk": sdk, "workflows": list(definitions)})


def replaying(*ops: Op | Callable[[Request], Op], output: Any = None) -> Script:
    """A script that behaves as an SDK does: the first of the ops whose step has no result, or the end of the run."""

    def script(request: Request) -> Answer:
        for op in ops:
            made = op(request) if callable(op) else op
            if made["id"] not in request["steps"]:
                return made
        return {"op": "run_completed", "output": output}

    return script


def completed(step_id: str, output: Any = None) -> Op:
    """A `step.run` that returned."""
    return {"op": "step_completed", "id": step_id, "name": step_id, "output": output}


def failed(step_id: str, message: str = "no", **fields: Any) -> Op:
    """A `step.run` that raised."""
    return {"op": "step_failed", "id": step_id, "error": {"name": "Error", "message": message}, **fields}


def sleep(step_id: str, duration: str | float) -> Op:
    """A sleep."""
    return {"op": "sleep", "id": step_id, "duration": duration}


def wait_for_event(step_id: str, event: str, **fields: Any) -> Op:
    """A wait; `match`, `timeout`, `lookback` and, as `**{"if": …}`, the condition."""
    return {"op": "wait_for_event", "id": step_id, "event": event, **fields}


def send_event(step_id: str, *events: Mapping[str, Any]) -> Op:
    """A `send_event`."""
    return {"op": "send_event", "id": step_id, "events": list(events)}


def _json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value, separators=(",", ":")).encode())


def _encoded(reply: Reply, repeated: Mapping[str, str | None]) -> bytes:
    headers: dict[str, str | None] = {
        "Content-Type": "application/json",
        "Content-Length": str(len(reply.body)),
        **repeated,
        **reply.headers,
    }
    lines = [
        f"HTTP/1.1 {reply.status} X",
        *(f"{name}: {value}" for name, value in headers.items() if value is not None),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body
