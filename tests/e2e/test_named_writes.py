"""Writes with an Idempotency-Key happen once, while services are killed under clients that do not give up."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
from runr_workflows import Context, Step, Workflows

from tests.support.http_gateway import Reply
from tests.support.rest import END_S, Rest
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

pytestmark = only_over("http", because="what is written is the same, however runs are executed")

WRITES = 60
UNKNOWN = "/idempotency-outcome-unknown"


def noted(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("noted", triggers=[{"event": "note"}], retries=0)
    def work(ctx: Context, step: Step) -> Any:
        return ctx.event["data"]["n"]


async def persistently(rest: Rest, path: str, body: Any, key: str) -> Reply:
    """What a careful client does: it asks again under the same key until it has an answer that says how it ended."""
    async with asyncio.timeout(END_S):
        while True:
            try:
                reply = await rest.call("POST", path, body, headers={"Idempotency-Key": key})
            except aiohttp.ClientError:
                reply = None
            in_progress = reply is not None and b"idempotency-in-progress" in reply.body
            if reply is not None and reply.status != 503 and not in_progress:
                return reply
            await asyncio.sleep(0.05 + 0.1 * random.random())


async def test_named_writes_happen_once_over_kills(stack: Stack, rest: Rest) -> None:
    start = f"/projects/{rest.project}/workflows/noted/runs"

    async def write(n: int) -> list[str]:
        """The ids of the runs that the n-th write has started; it is asked again when it was answered."""
        path, body = (start, {"data": {"n": n}}) if n % 2 else ("/events", {"name": "note", "data": {"n": n}})
        first = await persistently(rest, path, body, f"key-{n}")
        again = await persistently(rest, path, body, f"key-{n}")
        assert first.status in (200, 201), first.body
        assert (again.status, again.json) == (first.status, first.json)
        return [first.json["id"]] if n % 2 else list(first.json["events"][0]["runs"])

    async with serving(rest, noted):
        writing = [asyncio.create_task(write(n)) for n in range(WRITES)]
        for _ in range(2):
            await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)
            await stack.kill("ingest")
            await stack.start("ingest")
        runs = [run for found in await asyncio.gather(*writing) for run in found]
        outputs = sorted([await rest.completed(run) for run in runs])
        stored = await rest.ok("GET", f"/projects/{rest.project}/runs?limit=200")
    assert outputs == list(range(WRITES))
    assert len(stored["data"]) == WRITES


async def test_a_replay_that_was_cut_off_happens_at_most_once(stack: Stack, rest: Rest) -> None:
    async with serving(rest, noted):
        run = await rest.start("noted", {"n": 1})
        await rest.completed(run)
        replaying = [asyncio.create_task(persistently(rest, f"/runs/{run}/replay", {}, f"r-{n}")) for n in range(20)]
        await asyncio.wait(replaying, return_when=asyncio.FIRST_COMPLETED)
        await stack.kill("ingest")
        await stack.start("ingest")
        # Of those that were under way nobody may say that they did not happen, until their time is over.
        over, _ = await asyncio.wait(replaying, timeout=3)
        for task in replaying:
            task.cancel()
        replies = [task.result() for task in over]
        assert all(reply.status == 201 or UNKNOWN in reply.problem(409)["type"] for reply in replies)
        stored = await rest.ok("GET", f"/projects/{rest.project}/runs?limit=200")
    replays = [found["id"] for found in stored["data"] if found["replay_of_run_id"]]
    assert len(replays) <= 20
    assert {reply.json["id"] for reply in replies if reply.status == 201} <= set(replays)


async def test_a_key_is_checked(rest: Rest) -> None:
    path = f"/projects/{rest.project}/workflows/noted/runs"
    async with serving(rest, noted):
        made = await rest.call("POST", path, {"data": {"n": 1}}, headers={"Idempotency-Key": '"k"'})
        assert made.status == 201
        other = await rest.call("POST", path, {"data": {"n": 2}}, headers={"Idempotency-Key": "k"})
        assert other.problem(422)["type"].endswith("/idempotency-key-reused")
        bad = await rest.call("POST", path, {"data": {"n": 2}}, headers={"Idempotency-Key": "x" * 256})
        assert bad.problem(400)["type"].endswith("/idempotency-key")
        # A read has no key.
        assert (await rest.call("GET", "/projects", headers={"Idempotency-Key": "k"})).status == 200
        renamed = [
            await rest.call("PATCH", f"/projects/{rest.project}", {"name": "n"}, headers={"Idempotency-Key": "p"})
            for _ in range(2)
        ]
        assert [reply.status for reply in renamed] == [200, 200]
        rotate = f"/projects/{rest.project}/workflows/app/rotate-key"
        keys = [(await rest.call("POST", rotate, {}, headers={"Idempotency-Key": "once"})).json for _ in range(2)]
        assert keys[0] == keys[1]
        assert await rest.ok("GET", f"/projects/{rest.project}/workflows/app") == keys[0]
