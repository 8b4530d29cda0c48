"""Ways to start: keys, delays, tags, pause."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Rest
from tests.support.workflow_app import Bodies, serving


def simple(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("simple", triggers=[{"event": "simple.begun"}])
    def work(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("work", bodies.record, ctx.run_id, "work")
        return {"data": ctx.event["data"], "source": ctx.source, "test": ctx.test}

    @wf.workflow("once", triggers=[{"event": "once.begun"}], idempotency="event.data.key")
    def once(ctx: Context, step: Step) -> Any:
        step.run("work", bodies.record, ctx.run_id, "work")
        return ctx.event["data"]["n"]


def path(rest: Rest, workflow: str) -> str:
    return f"/projects/{rest.project}/workflows/{workflow}/runs"


async def test_a_key_starts_one_run_also_when_all_come_at_once(rest: Rest) -> None:
    async with serving(rest, simple) as bodies:
        body = {"data": {"n": 1}, "idempotency_key": "k-1"}
        replies = await asyncio.gather(*(rest.call("POST", path(rest, "simple"), body) for _ in range(12)))
        assert sorted(reply.status for reply in replies) == [200] * 11 + [201]
        (run,) = {reply.json["id"] for reply in replies}
        await rest.completed(run)
        late = await rest.call("POST", path(rest, "simple"), {**body, "data": {"n": 2}})
        assert (late.status, late.json["id"], late.json["idempotency_key"]) == (200, run, "k-1")
        other = await rest.call("POST", path(rest, "simple"), {**body, "idempotency_key": "k-2"})
        assert other.status == 201
        await rest.completed(other.json["id"])
    assert bodies.of(run) == {"work": 1}


async def test_an_expression_makes_the_key(rest: Rest) -> None:
    async with serving(rest, simple):
        runs = [(await rest.send("once.begun", {"key": key, "n": n}))["runs"][0] for n, key in enumerate(["a", "a", 1])]
        keyless = [(await rest.send("once.begun", {"n": n}))["runs"][0] for n in (7, 8)]
        assert runs[0] == runs[1]
        assert len({*runs, *keyless}) == 4
        assert [await rest.completed(run) for run in (runs[0], runs[2], *keyless)] == [0, 2, 7, 8]


async def test_a_delayed_run_begins_when_it_is_due(rest: Rest) -> None:
    async with serving(rest, simple) as bodies:
        began = time.time()
        soon = await rest.start("simple", delay="800ms")
        at = (datetime.now(UTC) + timedelta(seconds=1.2)).isoformat()
        later = await rest.start("simple", at=at)
        shown = await rest.run(soon)
        assert shown["status"] == "queued"
        assert shown["due_at"] is not None
        for run in (soon, later):
            await rest.completed(run)
    assert bodies.times(soon, "work")[0] - began >= 0.8
    assert bodies.times(later, "work")[0] - began >= 1.2


async def test_what_a_start_gives_reaches_the_function(rest: Rest) -> None:
    async with serving(rest, simple):
        run = await rest.start("simple", {"n": 1}, test=True, tags=["eu", "gold"])
        assert await rest.completed(run) == {"data": {"n": 1}, "source": "api", "test": True}
        found = await rest.run(run)
        assert found["tags"] == ["eu", "gold"]
        assert [each["id"] for each in await rest.runs("?tag=gold")] == [run]
        assert await rest.runs("?tag=silver") == []


async def test_a_paused_workflow_starts_nothing_until_it_goes_on(rest: Rest) -> None:
    async with serving(rest, simple):
        workflow = f"/projects/{rest.project}/workflows/simple"
        delayed = await rest.start("simple", delay="300ms")
        await rest.ok("PATCH", workflow, {"is_active": False})
        (await rest.call("POST", path(rest, "simple"), {})).problem(409)
        skipped = await rest.send("simple.begun")
        assert skipped["runs"] == []
        event = await rest.ok("GET", f"/events/{skipped['id']}")
        assert [(each["workflow"], each["reason"]) for each in event["skipped"]] == [("simple", "paused")]
        # What had started goes on.
        await rest.completed(delayed)
        await rest.ok("PATCH", workflow, {"is_active": True})
        (run,) = (await rest.send("simple.begun"))["runs"]
        await rest.completed(run)
