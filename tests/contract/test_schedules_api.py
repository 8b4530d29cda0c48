"""Cron triggers over HTTP: the gateway, the scheduler's servicer and a real database."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.core.engine.bulk_job import BulkJobs
from services.core.rpc.server import RpcServer
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.runs import RunReader
from services.scheduler.schedule_service import ScheduleService
from tests.support.grpc_backend import LOOPBACK, VIEWER, TwoTokens, no_telemetry
from tests.support.http_gateway import Client, gateway
from tests.support.schedules import ScheduleStory, cron, story, workflow
from tests.support.still_clock import still_clock

__all__ = ["still_clock", "story"]

LIST = "/api/projects/default/schedules"
W = f"{LIST}/w/1"


@pytest.fixture
async def client(story: ScheduleStory) -> AsyncIterator[Client]:
    await story.clock.set("2026-06-05T08:00:30Z")
    await story.declare(
        workflow("w", {"event": "x"}, cron("0 9 * * *", timezone="Europe/Berlin", catch_up="all")),
        workflow("keyed", cron("* * * * *"), idempotency="event.data.cron"),
    )
    database = story.rows.database
    jobs = BulkJobs(database, UlidFactory(SystemClock(), random.Random()), SystemClock(), lambda: None)
    service = ScheduleService(story.schedules, story.by_hand, RunReader(database), jobs)
    server = RpcServer(LOOPBACK, [service.registration], authenticator=TwoTokens(), telemetry=no_telemetry())
    async with gateway({}, server=server) as found:
        yield found


def shown(**more: Any) -> dict[str, Any]:
    return {
        "project": "default",
        "workflow": "w",
        "trigger": 1,
        "cron": "0 9 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": "all",
        "is_active": True,
        "next_at": [f"2026-06-{day:02}T07:00:00.000Z" for day in range(6, 11)],
        "last_at": None,
        "last_run_id": None,
        **more,
    }


async def test_list(client: Client) -> None:
    listed = await client.call("GET", LIST, token=VIEWER)
    assert (listed.status, listed.json["next_cursor"]) == (200, None)
    assert [(each["workflow"], each["trigger"]) for each in listed.json["data"]] == [("keyed", 0), ("w", 1)]
    assert listed.json["data"][1] == shown()
    first = (await client.call("GET", f"{LIST}?limit=1")).json
    second = (await client.call("GET", f"{LIST}?limit=1&cursor={first['next_cursor']}")).json
    assert [each["workflow"] for each in (*first["data"], *second["data"])] == ["keyed", "w"]
    assert second["next_cursor"] is None
    (await client.call("GET", "/api/projects/nowhere/schedules")).problem(404)


async def test_pause_and_let_go_on(client: Client) -> None:
    paused = await client.call("PATCH", W, body={"is_active": False})
    assert (paused.status, paused.json) == (200, shown(is_active=False, next_at=[]))
    assert (await client.call("GET", LIST)).json["data"][1] == paused.json
    assert (await client.call("PATCH", W, body={"is_active": True})).json == shown()
    assert "is_active" in (await client.call("PATCH", W, body={})).faults()
    (await client.call("PATCH", W, body={"is_active": False}, token=VIEWER)).problem(403)


async def test_fire_now(client: Client, story: ScheduleStory) -> None:
    fired = await client.call("POST", f"{W}/trigger")
    assert fired.status == 201
    run = fired.json
    assert (run["workflow"], run["source"], run["status"]) == ("w", "cron", "queued")
    assert fired.headers["Location"] == f"/api/runs/{run['id']}"
    assert (await client.call("GET", LIST)).json["data"][1] == shown(
        last_at="2026-06-05T08:00:30.000Z", last_run_id=run["id"]
    )
    keyed = [await client.call("POST", f"{LIST}/keyed/0/trigger") for _ in range(2)]
    assert [each.status for each in keyed] == [201, 200]
    assert keyed[0].json["id"] == keyed[1].json["id"]
    await story.pause("w")
    (await client.call("POST", f"{W}/trigger")).problem(409)
    (await client.call("POST", f"{W}/trigger", token=VIEWER)).problem(403)


async def test_backfill(client: Client) -> None:
    days = {"from": "2026-06-01T07:00:00Z", "to": "2026-06-05T07:00:00Z"}
    dry = await client.call("POST", f"{W}/backfill", body={**days, "dry_run": True})
    assert (dry.status, dry.json) == (200, {"total": 4, "started": 0, "skipped": 0})
    done = await client.call("POST", f"{W}/backfill", body=days)
    assert (done.status, done.json) == (200, {"total": 4, "started": 4, "skipped": 0})
    more = await client.call("POST", f"{W}/backfill", body={"from": "2026-06-01T07:00:00Z"})
    assert more.json == {"total": 5, "started": 1, "skipped": 4}
    (await client.call("POST", f"{W}/backfill", body=days, token=VIEWER)).problem(403)


async def test_a_bad_range_names_its_fields(client: Client) -> None:
    async def faults(**body: Any) -> list[str]:
        return list((await client.call("POST", f"{W}/backfill", body=body)).faults())

    assert await faults() == ["from"]
    assert await faults(**{"from": "yesterday"}) == ["from"]
    assert await faults(**{"from": "2026-06-05T09:00:00Z"}) == ["from"]
    assert await faults(**{"from": "2026-06-05T07:00:00Z", "to": "2027-01-01T00:00:00Z"}) == ["to"]
    minutes = await client.call("POST", f"{LIST}/keyed/0/backfill", body={"from": "2026-06-01T00:00:00Z"})
    assert "more than 1000 ticks" in minutes.faults()["to"]


@pytest.mark.parametrize("path", ["w/0", "w/2", "w/99999", "w/-1", "w/1.0", "w/x", "nothing/0", "w/٣"])
async def test_a_trigger_that_is_not_there(client: Client, path: str) -> None:
    (await client.call("PATCH", f"{LIST}/{path}", body={"is_active": False})).problem(404)
    (await client.call("POST", f"{LIST}/{path}/trigger")).problem(404)
    (await client.call("POST", f"{LIST}/{path}/backfill", body={"from": "2026-06-01T00:00:00Z"})).problem(404)
