"""Kills while parents wait for children and steps send events: what follows a commit follows it exactly once."""

from __future__ import annotations

import asyncio
from typing import Any

from runr_workflows import Context, InvokeError, Step, Workflows

from tests.support import invariants
from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.workflow_app import Bodies, serving

FAMILIES = 80


def family(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("child", retries=4)
    def child(ctx: Context, step: Step) -> int:
        step.sleep("nap", "100ms")
        step.run("work", bodies.record, ctx.run_id, "work")
        n = int(ctx.event["data"]["n"])
        if n % 4 == 0:
            step.options(retries=0).run("fail", fail)
        return 2 * n

    def fail() -> None:
        raise ValueError("every fourth child fails")

    @wf.workflow("parent", triggers=[{"event": "family.begun"}], retries=4)
    def parent(ctx: Context, step: Step) -> Any:
        n = ctx.event["data"]["n"]
        step.send_event("announce", {"name": "family.announced", "data": {"n": n}})
        try:
            got = step.invoke("child", child, data={"n": n})
        except InvokeError:
            got = None
        step.send_event("report", [{"name": "family.reported", "data": {"n": n}}] * 2)
        return got

    @wf.workflow("tally", triggers=[{"event": "family.announced"}, {"event": "family.reported"}], retries=4)
    def tally(ctx: Context, step: Step) -> int:
        return int(ctx.event["data"]["n"])


async def all_runs(rest: Rest, workflow: str) -> list[str]:
    """The ids of all runs of a workflow."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await rest.ok("GET", f"/projects/{rest.project}/runs?workflow={workflow}&limit=200{cursor}")
        found += [run["id"] for run in page["data"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_children_and_events_come_exactly_once(stack: Stack) -> None:
    await stack.revive()
    async with stack.tenant() as rest, serving(rest, family) as bodies:
        events = [{"name": "family.begun", "data": {"n": n}} for n in range(FAMILIES)]
        accepted = (await rest.ok("POST", "/events", events))["events"]
        parents = [event["runs"][0] for event in accepted]
        for service, share in (("executor", 0.2), ("scheduler", 0.4), ("executor", 0.7)):
            await bodies.until(lambda done, share=share: len(done) >= share * FAMILIES)  # type: ignore[misc]
            await stack.kill(service)
            await stack.start(service)
        outputs = await asyncio.gather(*(rest.completed(run) for run in parents))
        assert outputs == [None if n % 4 == 0 else 2 * n for n in range(FAMILIES)]
        children = await all_runs(rest, "child")
        assert len(children) == FAMILIES
        ended = await asyncio.gather(*(rest.end(run) for run in children))
        assert sum(run["status"] == "failed" for run in ended) == FAMILIES / 4

        # The last reports may still be on their way when the last parent has ended.
        tallies = await rest.until(lambda: all_runs(rest, "tally"), lambda found: len(found) >= 3 * FAMILIES)
        tallied = await asyncio.gather(*(rest.completed(run) for run in tallies))
        assert sorted(tallied) == sorted([*range(FAMILIES)] * 3)
    await invariants.check(stack.database_url, accepted=parents)
