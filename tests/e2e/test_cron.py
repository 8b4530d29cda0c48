"""A workflow on a schedule: listed, fired by hand, caught up after downtime, backfilled."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.rest import Json, Rest
from tests.support.stack import Stack
from tests.support.workflow_app import Bodies, serving

MINUTE = (datetime.now(UTC).minute + 30) % 60
"""Half an hour away: no tick of its own comes while a story is told."""


def reports(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("report", triggers=[{"cron": f"{MINUTE} 9 * * *", "timezone": "Europe/Istanbul"}])
    def report(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("report", bodies.record, ctx.run_id, "report")
        return {"source": ctx.source, "event": ctx.event["name"], "ts": ctx.event["ts"], "data": ctx.event["data"]}

    @wf.workflow("hourly", triggers=[{"event": "hour.asked"}, {"cron": f"{MINUTE} * * * *"}])
    def hourly(ctx: Context, step: Step) -> Any:
        step.run("report", bodies.record, ctx.run_id, "report")
        return ctx.event["data"]["scheduled_at"]


def text(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


async def schedules(rest: Rest) -> dict[str, Json]:
    found = await rest.ok("GET", f"/projects/{rest.project}/schedules")
    return {each["workflow"]: each for each in found["data"]}


async def test_a_schedule_from_its_sync_to_its_runs(rest: Rest) -> None:
    async with serving(rest, reports) as bodies:
        listed = await schedules(rest)
        nine = [datetime.fromisoformat(at) for at in listed["report"]["next_at"]]
        assert len(nine) == 5
        assert {(at.hour, at.minute) for at in nine} == {(6, MINUTE)}, "in Istanbul it is nine"
        one = f"/projects/{rest.project}/schedules/report/0"
        run = (await rest.ok("POST", f"{one}/trigger"))["id"]
        output = await rest.completed(run)
        assert (output["source"], output["event"]) == ("cron", "runr/cron")
        assert output["data"]["cron"] == f"{MINUTE} 9 * * *"
        assert output["data"]["timezone"] == "Europe/Istanbul"
        first = nine[0] - timedelta(days=3)
        done = await rest.ok("POST", f"{one}/backfill", {"from": text(first)})
        assert done == {"total": 3, "started": 3, "skipped": 0}
        runs = [each["id"] for each in await rest.runs("?workflow=report") if each["id"] != run]
        outputs = [await rest.completed(each) for each in runs]
        ticks = [first + timedelta(days=day) for day in range(3)]
        assert sorted(each["data"]["scheduled_at"] for each in outputs) == [text(tick) for tick in ticks]
        assert sorted(each["ts"] for each in outputs) == [tick.timestamp() * 1_000 for tick in ticks]
        assert all(bodies.of(each) == {"report": 1} for each in (run, *runs))
        assert (await rest.call("PATCH", one, {"is_active": False})).json["next_at"] == []


async def test_what_was_missed_while_no_scheduler_ran_is_caught_up_once(rest: Rest, stack: Stack) -> None:
    async with serving(rest, reports):
        now = datetime.fromisoformat((await schedules(rest))["hourly"]["next_at"][0])
        latest = now - timedelta(hours=1)
        await stack.kill("scheduler")
        # As if it had been away for five hours.
        missed = "update rt.cron set next_at = $1 where place = 1 and next_at = $2 returning id"
        assert await stack.value(missed, latest - timedelta(hours=5), now.astimezone(UTC))
        await stack.start("scheduler")
        (run,) = [each["id"] for each in await wait_for_runs(rest, "hourly")]
        assert await rest.completed(run) == text(latest)
        after = (await schedules(rest))["hourly"]
        assert after["last_run_id"] == run
        assert datetime.fromisoformat(after["next_at"][0]) == now


async def wait_for_runs(rest: Rest, workflow: str) -> list[Json]:
    async with asyncio.timeout(30):
        while (await schedules(rest))[workflow]["last_run_id"] is None:
            pass  # the answer itself takes a moment
    return await rest.runs(f"?workflow={workflow}")
