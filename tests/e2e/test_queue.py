"""The queue bridge: messages become runs, over HTTP and from JetStream, each once."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from typing import Any

import asyncpg
from runr_workflows import Context, Step, Workflows

from services.core.domain.caller import WORKFLOWS_VIEW
from services.core.engine.tokens import hash_token
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.access import insert_token
from services.embedded.stack import EmbeddedStack
from tests.support.queues import producing
from tests.support.rest import Rest, step_of
from tests.support.stack import Stack
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving

APP = "/projects/default/workflows/app"
COUNT = 150


def charging(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("charge", triggers=[{"queue": "payments"}])
    def charge(ctx: Context, step: Step) -> dict[str, Any]:
        step.run("charge", bodies.record, ctx.run_id, "charge")
        return {"source": ctx.source, "event": ctx.event["name"], "data": ctx.event["data"]}

    @wf.workflow("refund", triggers=[{"event": "refund.asked"}])
    def refund(ctx: Context, step: Step) -> Any:
        message = step.wait_for_event("paid", "queue/payments", match="data.order_id", timeout="1h")
        return message and message["data"]


def path_of(url: str, api_url: str) -> str:
    """The path of a URL as `Rest.call` takes it."""
    base = f"{api_url}/api"
    assert url.startswith(f"{base}/internal/workflows/queue/")
    return url.removeprefix(base)


async def test_a_message_over_http_starts_a_run_and_resumes_another_once(stack: Stack, rest: Rest) -> None:
    async with serving(rest, charging) as bodies:
        assert (await rest.ok("GET", APP))["queue_bridge_url"] is None
        await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": "payments"}})
        sink = path_of((await rest.ok("GET", APP))["queue_bridge_url"], stack.api_url)
        (waiting,) = (await rest.send("refund.asked", {"order_id": "o-1"}))["runs"]
        await rest.becomes(waiting, "waiting")
        message = {"id": "1700000000000-0", "fields": {"payload": '{"order_id": "o-1", "cents": 1250}'}}
        replies = [await rest.call("POST", sink, message, token=None) for _ in range(3)]
        assert [reply.status for reply in replies] == [200] * 3
        assert [reply.json["duplicate"] for reply in replies] == [False, True, True]
        ((run,),) = {tuple(reply.json["runs"]) for reply in replies}
        data = {"order_id": "o-1", "cents": 1250}
        assert await rest.completed(run) == {"source": "queue", "event": "queue/payments", "data": data}
        assert await rest.completed(waiting) == data
        event = await rest.ok("GET", f"/events/{replies[0].json['id']}")
    assert (event["source"], event["project"], event["resumed"]) == ("queue", "default", 1)
    assert bodies.of(run) == {"charge": 1}


@only_over("http", because="no code of the project is needed")
async def test_the_address_is_a_secret_and_changes_with_the_key(stack: Stack, rest: Rest) -> None:
    await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": "payments"}})
    old = path_of((await rest.ok("GET", APP))["queue_bridge_url"], stack.api_url)
    viewer = await viewer_token(stack, rest)
    seen = await rest.call("GET", APP, token=viewer)
    assert (seen.status, seen.json["queue_bridge_url"]) == (200, None)
    new = path_of((await rest.ok("POST", f"{APP}/rotate-key", {}))["queue_bridge_url"], stack.api_url)
    message = {"id": "1-0", "fields": {"n": 1}}
    assert old != new
    assert [(await rest.call("POST", path, message, token=None)).json["duplicate"] for path in (new, old)] == [
        False,
        True,
    ]
    (await rest.call("POST", new[:-1] + ("1" if new[-1] == "0" else "0"), message, token=None)).problem(401)
    (await rest.call("POST", new, {"id": "2-0", "fields": {"text": "x" * 300_000}}, token=None)).problem(413)


@only_over("http", because="what dies is between the queue and the run, whoever executes it")
async def test_a_jetstream_stream_is_consumed_and_a_killed_ingest_loses_and_doubles_nothing(
    stack: Stack, rest: Rest, nats_stack: EmbeddedStack
) -> None:
    async with serving(rest, charging) as bodies, producing(nats_stack.urls["nats"]) as producer:
        await producer.jetstream.add_stream(name="payments", subjects=["payments.>"], metadata={"runr.tenants": "*"})
        await rest.ok("PATCH", "/projects/default", {"config": {"queue_stream": "nats:payments"}})
        assert (await rest.ok("GET", APP))["queue_bridge_url"] is None
        publishing = asyncio.create_task(
            producer.publish("payments", *(json.dumps({"order_id": n}).encode() for n in range(COUNT)))
        )
        await bodies.until(lambda done: len(done) > 5)
        await stack.kill("ingest")
        await publishing
        await stack.start("ingest")
        await stack.ready()
        await bodies.until(lambda done: len({body.run for body in done}) >= COUNT)
        runs = await rest.runs("?workflow=charge&limit=200")
        outputs = [await rest.completed(run["id"]) for run in runs]
        (consumer,) = await producer.jetstream.consumers_info("payments")
        await producer.settled("payments", consumer.name)
        shown = await rest.run(runs[0]["id"])
    assert sorted(output["data"]["order_id"] for output in outputs) == list(range(COUNT))
    assert {(output["source"], output["event"]) for output in outputs} == {("queue", "queue/payments")}
    assert step_of(shown, "charge")["status"] == "completed"
    assert set(bodies.of(runs[0]["id"]).values()) == {1}


async def viewer_token(stack: Stack, rest: Rest) -> str:
    """A token of the client's tenant that may only look."""
    token = f"rt_{secrets.token_urlsafe(24)}"
    connection = await asyncpg.connect(stack.database_url)
    try:
        tenant = await connection.fetchval("select tenant from rt.token where hash = $1", hash_token(rest.token))
        await insert_token(
            connection,
            id=UlidFactory(SystemClock(), random.Random()).new(),
            tenant=tenant,
            name="viewer",
            token_hash=hash_token(token),
            abilities=[WORKFLOWS_VIEW],
            expires_ms=None,
        )
    finally:
        await connection.close()
    return token
