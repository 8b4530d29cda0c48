"""What the rules ask a function with: every request and answer of a check goes through here."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from services.cli.conformance.execution import Execution
from services.cli.conformance.post import Post, Signer
from services.cli.conformance.rule import Broken
from services.cli.conformance.wire import NoAnswer, Place, Reply, Wire
from services.core.domain.envelope import introspect_request
from services.core.domain.function_answer import Introspection, parse_answer, parse_introspection
from services.core.domain.op import BadStep, FunctionFault, Op
from services.core.runtime.settings import WorkflowLimits

MAX_REQUESTS = 1000


@dataclass(frozen=True, slots=True)
class Answered:
    """A valid answer to an execute request: its ops as the engine reads them, and as they were written."""

    post: Post
    reply: Reply
    ops: Sequence[Op]
    written: Sequence[dict[str, Any]]

    @property
    def op(self) -> Op:
        """The last op; the only one where no more were allowed."""
        return self.ops[-1]

    def expect(self, holds: bool, expected: str) -> None:
        """Raise Broken unless it holds."""
        if not holds:
            raise Broken(self.post.shown(), expected, self.reply.shown())


class Probe:
    """Asks one function. `keys` are what it holds: its key, and the one it falls back to if that is known."""

    def __init__(self, place: Place, keys: Sequence[str], *, timeout_s: float) -> None:
        self.place = place
        self.keys = tuple(keys)
        self.timeout_s = timeout_s
        self.asked = 0
        """Requests so far."""
        self.served: frozenset[str] = frozenset()
        """The workflows that the function lists."""
        self.capabilities: frozenset[str] = frozenset()
        self._limits = WorkflowLimits()

    def signer(self, **changes: Any) -> Signer:
        """What signs as the engine does now, but for the changes: fields of Signer."""
        return Signer(**{"keys": self.keys[:1], "unix_s": int(time.time()), **changes})

    def introspect_text(self, more: str = "") -> str:
        """An introspect request; `more` are further members, with a comma before."""
        return f"{introspect_request(int(time.time()))[:-1]}{more}}}"

    async def send(self, post: Post, *, split_after: int | None = None) -> Reply:
        """The answer to a post on a connection of its own. Raises Broken without one."""
        try:
            async with Wire(self.place) as wire:
                return await self.send_on(wire, post, split_after=split_after)
        except NoAnswer as error:
            raise Broken(post.shown(), "an answer", str(error)) from error

    async def send_on(self, wire: Wire, post: Post, *, split_after: int | None = None) -> Reply:
        """The answer to a post on an open connection. Raises Broken without one in time, NoAnswer if that breaks."""
        self.asked += 1
        if self.asked > MAX_REQUESTS:
            raise Broken(post.shown(), f"that {MAX_REQUESTS} requests are enough", "more were needed")
        try:
            async with asyncio.timeout(self.timeout_s):
                reply = await wire.exchange(post.headers, post.body, split_after=split_after)
        except TimeoutError:
            raise Broken(post.shown(), f"an answer within {self.timeout_s:g} s", "none") from None
        if reply.request_id is not None and reply.request_id != post.request_id:
            raise Broken(
                post.shown(), f"X-RunR-Request-Id {post.request_id}, or none", f"the id {reply.request_id[:60]}"
            )
        return _unwrapped(reply)

    async def refused(self, post: Post, status: int, *, naming: str = "") -> None:
        """The post is answered with this status and `{"error": …}`, whose text names `naming`."""
        reply = await self.send(post)
        error = _error_text(reply.body)
        if reply.status != status or error is None or naming not in error:
            named = f" whose text names {naming}" if naming else ""
            raise Broken(post.shown(), f'HTTP {status} with {{"error": …}}{named}', reply.shown())

    async def accepted(self, post: Post) -> Introspection:
        """The post of an introspect request is answered with what is served."""
        reply = await self.send(post)
        try:
            return parse_introspection(reply.status, reply.body)
        except FunctionFault as fault:
            raise Broken(post.shown(), "HTTP 200 with the workflows", f"{reply.shown()} ({fault})") from fault

    async def execute(self, execution: Execution, about: str, *, wire: Wire | None = None) -> Answered:
        """The ops that an invocation is answered with. Raises Broken where the engine would refuse the answer."""
        post = self.execute_post(execution, about)
        reply = await (self.send(post) if wire is None else self.send_on(wire, post))
        try:
            ops = parse_answer(reply.status, reply.body, limits=self._limits, max_ops=execution.max_ops or 1)
        except FunctionFault as fault:
            raise Broken(post.shown(), "an execute answer of protocol v1", f"{reply.shown()} ({fault})") from fault
        bad = next((op for op in ops if isinstance(op, BadStep)), None)
        if bad is not None:
            raise Broken(post.shown(), "a step that the engine takes", f"{reply.shown()} ({bad.error.message})")
        return Answered(post, reply, ops, json.loads(reply.body)["ops"])

    def execute_post(self, execution: Execution, about: str, **changes: Any) -> Post:
        """The post of an invocation; `changes` as for `signer`."""
        headers = {
            "X-RunR-Workflow": execution.workflow,
            "X-RunR-Run-Id": execution.run_id,
            "X-RunR-Attempt": str(execution.attempt),
        }
        signer = self.signer(**{"headers": headers, **changes})
        return signer.post(about, execution.text(signer.unix_s), kind="execute")


def _unwrapped(reply: Reply) -> Reply:
    """The answer proper, without what a runtime has left around it (protocol section 2)."""
    if reply.status != 200 or b'"statusCode"' not in reply.body:
        return reply
    answer = _object(reply.body)
    status, body = answer.get("statusCode"), answer.get("body")
    if "runr_workflow" in answer or not isinstance(status, int) or isinstance(status, bool):
        return reply
    return replace(
        reply, status=status, body=(body if isinstance(body, str) else json.dumps(body)).encode(errors="replace")
    )


def _object(body: bytes) -> dict[str, Any]:
    """The members of a JSON object; none of what is something else."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _error_text(body: bytes) -> str | None:
    """The text of `{"error": …}`; None for what is something else."""
    error = _object(body).get("error")
    return error if isinstance(error, str) else None
