"""Bulk jobs over HTTP: the gateway, the scheduler's servicer and a real database."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.core.engine.bulk_job import BulkJobs
from services.core.engine.bulk_work import BulkWorker
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fire_schedule import ScheduleFirer
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.schedules import Schedules
from services.core.rpc.server import RpcServer
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.runs import RunReader
from services.scheduler.duties.bulk import Bulk
from services.scheduler.schedule_service import ScheduleService
from tests.support.grpc_backend import LOOPBACK, VIEWER, TwoTokens, no_telemetry
from tests.support.hand import Hand
from tests.support.http_gateway import Client, gateway
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

START = "/api/projects/default/runs/bulk"


@pytest.fixture
async def client(hand: Hand) -> AsyncIterator[Client]:
    clock, hints, definitions = SystemClock(), Hints(NullPublisher()), DefinitionsCache(None)
    ids = UlidFactory(clock, random.Random())
    service = ScheduleService(
        Schedules(hand.database),
        ScheduleFirer(hand.database, definitions, hints, ids),
        RunReader(hand.database),
        BulkJobs(hand.database, ids, clock, lambda: None),
    )
    server = RpcServer(LOOPBACK, [service.registration], authenticator=TwoTokens(), telemetry=no_telemetry())
    async with gateway({}, server=server) as found:
        yield found


def duty(hand: Hand) -> Bulk:
    ids = UlidFactory(SystemClock(), random.Random())
    return Bulk(BulkWorker(hand.database, DefinitionsCache(None), Hints(NullPublisher()), ids))


def shown(**more: Any) -> dict[str, Any]:
    return {
        "project": "default",
        "action": "cancel",
        "status": "completed",
        "total": 1,
        "total_is_partial": False,
        "succeeded": 0,
        "skipped": 0,
        "failed": 0,
        "faults": [],
        "error": None,
        **more,
    }


async def test_a_dry_run_counts_and_shows_some(client: Client, hand: Hand) -> None:
    run = await hand.start("work", tags=("red",))
    await hand.start("work")
    body = {"action": "cancel", "filter": {"tags": ["red"], "status": "queued"}, "dry_run": True}
    reply = await client.call("POST", START, body=body)
    assert (reply.status, reply.json) == (
        200,
        shown(id=None, created_at=None, ended_at=None, sample=[ulid_text(run)]),
    )


async def test_a_job_from_its_start_to_its_end(client: Client, hand: Hand, rows: LiveRows) -> None:
    run = await hand.start("work")
    reply = await client.call("POST", START, body={"action": "cancel", "filter": {"ids": [ulid_text(run)]}})
    assert reply.status == 202
    job = reply.json
    assert job == shown(
        status="queued", id=job["id"], created_at=job["created_at"], ended_at=None, sample=[ulid_text(run)]
    )
    assert reply.headers["Location"] == f"/api/bulk-jobs/{job['id']}"
    work = duty(hand)

    async def has_ended() -> bool:
        await work.run_once()
        return bool((await client.call("GET", reply.headers["Location"])).json["ended_at"])

    await until(has_ended)
    done = (await client.call("GET", reply.headers["Location"], token=VIEWER)).json
    assert done == shown(id=job["id"], succeeded=1, created_at=job["created_at"], ended_at=done["ended_at"])
    assert (await client.call("GET", START, token=VIEWER)).json == {"data": [done], "next_cursor": None}
    (await client.call("POST", f"{reply.headers['Location']}/stop")).problem(409)


async def test_a_job_is_stopped(client: Client, hand: Hand) -> None:
    await hand.start("work")
    job = (await client.call("POST", START, body={"action": "replay", "filter": {"status": ["queued"]}})).json
    again = await client.call("POST", START, body={"action": "replay", "filter": {"status": ["queued"]}})
    assert job["id"] in again.problem(409)["detail"]
    stopped = (await client.call("POST", f"/api/bulk-jobs/{job['id']}/stop")).json
    assert (stopped["status"], stopped["succeeded"]) == ("stopped", 0)


async def test_faults_carry_the_names_of_the_body(client: Client) -> None:
    for body, path in (
        ({"filter": {}}, "action"),
        ({"action": "cancel"}, "filter"),
        ({"action": "delete", "filter": {}}, "action"),
        ({"action": "backfill", "filter": {}}, "action"),
        ({"action": "cancel", "filter": {"state": "queued"}}, "filter.state"),
        ({"action": "cancel", "filter": {"status": "done"}}, "filter.status"),
        ({"action": "cancel", "filter": {"status": [1]}}, "filter.status"),
        ({"action": "cancel", "filter": {"status": "failed"}}, "filter.status"),
        ({"action": "cancel", "filter": {"ids": ["x"]}}, "filter.ids[0]"),
        ({"action": "cancel", "filter": {"from": "yesterday"}}, "filter.from"),
        ({"action": "cancel", "filter": {"tags": ["x" * 101]}}, "filter.tags"),
        ({"action": "cancel", "filter": [], "dry_run": True}, "filter"),
    ):
        assert list((await client.call("POST", START, body=body)).faults()) == [path], body


async def test_who_may_not_and_what_there_is_not(client: Client) -> None:
    body = {"action": "cancel", "filter": {}}
    (await client.call("POST", START, body=body, token=VIEWER)).problem(403)
    (await client.call("POST", "/api/bulk-jobs/01J0000000000000000000000A/stop", token=VIEWER)).problem(403)
    (await client.call("POST", "/api/projects/nothing/runs/bulk", body=body)).problem(404)
    (await client.call("POST", START, body={"action": "cancel", "filter": {"workflow": "nothing"}})).problem(404)
    for id in ("01J0000000000000000000000A", "x"):
        (await client.call("GET", f"/api/bulk-jobs/{id}")).problem(404)
        (await client.call("POST", f"/api/bulk-jobs/{id}/stop")).problem(404)
