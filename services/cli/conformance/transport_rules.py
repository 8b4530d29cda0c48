"""Rules about connections (protocol section 1)."""

from __future__ import annotations

import asyncio

from services.cli.conformance.envelope_rules import ABSENT
from services.cli.conformance.execution import Execution
from services.cli.conformance.post import Post
from services.cli.conformance.probe import Probe
from services.cli.conformance.replay_rules import field_of
from services.cli.conformance.rule import Broken, NotApplicable, Rule
from services.cli.conformance.wire import NoAnswer, Reply, Wire
from services.cli.conformance.workflows import REPLAY

_AT_ONCE = 8
_ON_ONE = 3
_PAUSE_MS = 50
"""So long each body takes, so that the runs are executed side by side."""


async def _request_id(probe: Probe) -> None:
    good = probe.signer().post("a good request", probe.introspect_text())
    if (await probe.send(good)).request_id is None:
        raise NotApplicable("it does not repeat X-RunR-Request-Id: it is asked over one connection a request")
    strange = probe.signer(keys=["wfsk_of_somebody_else"]).post("a request that is refused", probe.introspect_text())
    unknown = probe.execute_post(Execution.of(ABSENT), "a request for a workflow that is not served")
    for post in (strange, unknown, Post("a body that is no envelope", good.headers, b"{}")):
        reply = await probe.send(post)
        if reply.request_id is None:
            raise Broken(post.shown(), "X-RunR-Request-Id with every answer, whatever its status", reply.shown())


async def _keep_alive(probe: Probe) -> None:
    posts = [probe.signer().post(f"request {n + 1} on one connection", probe.introspect_text()) for n in range(_ON_ONE)]
    try:
        async with Wire(probe.place) as wire:
            for post in posts:
                reply = await probe.send_on(wire, post)
                if reply.request_id is None or not reply.persists:
                    why = "does not repeat X-RunR-Request-Id" if reply.request_id is None else "closes its connections"
                    raise NotApplicable(f"it {why}: it is asked over one connection a request")
                _expect_ok(post, reply)
    except NoAnswer as error:
        raise Broken(posts[-1].shown(), "an answer on a connection that is kept", str(error)) from error


async def _in_pieces(probe: Probe) -> None:
    post = probe.signer().post("a body that comes in two pieces", probe.introspect_text())
    _expect_ok(post, await probe.send(post, split_after=len(post.body) // 2))


async def _at_once(probe: Probe) -> None:
    posts = [probe.signer().post(f"{_AT_ONCE} requests at once", probe.introspect_text()) for _ in range(_AT_ONCE)]
    for post, reply in zip(posts, await asyncio.gather(*map(probe.send, posts)), strict=True):
        _expect_ok(post, reply)


async def _runs_at_once(probe: Probe) -> None:
    tags = [f"run-{number}" for number in range(_AT_ONCE)]
    runs = [Execution.of(REPLAY, tag=tag, pause_ms=_PAUSE_MS) for tag in tags]
    asked = (probe.execute(run, f"{_AT_ONCE} runs at once, this is {tag}") for run, tag in zip(runs, tags, strict=True))
    for tag, answered in zip(tags, await asyncio.gather(*asked), strict=True):
        answered.expect(field_of(answered, "tag") == tag, f"the result of {tag}, not of another run")


def _expect_ok(post: Post, reply: Reply) -> None:
    if reply.status != 200:
        raise Broken(post.shown(), "HTTP 200", reply.shown())


RULES = (
    Rule("connection-body-in-pieces", 1, _in_pieces),
    Rule("connection-requests-at-once", 1, _at_once),
    Rule("connection-runs-at-once", 7, _runs_at_once, REPLAY),
    Rule("connection-request-id", 1, _request_id),
    Rule("connection-kept", 1, _keep_alive),
)
"""In the order in which they are checked."""
