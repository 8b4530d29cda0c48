"""No secret leaves the services: not in the most talkative log, not in a trace, not in a list or an error."""

from __future__ import annotations

import asyncio
import base64
import random
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import asyncpg
import pytest
from runr_workflows import Context, Step, Workflows

from services.core.engine.passwords import Passwords
from services.core.engine.users import create_user
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.members import insert_member
from services.embedded.stack import EmbeddedStack
from services.gateway.routes.table import ROUTES
from tests.support.otlp_receiver import OtlpReceiver, otlp_receiver
from tests.support.rest import Rest
from tests.support.stack import Servers, Stack
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY
from tests.support.transports import TRANSPORTS
from tests.support.workflow_app import Bodies, serving

PASSWORD = "correct-horse-battery"
WRONG = "wrong-horse-battery"
UNKNOWN = "rt_" + "unknown" * 6


def failing(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("pay", triggers=[{"event": "paid"}], retries=0)
    def pay(ctx: Context, step: Step) -> Any:
        step.run("work", bodies.record, ctx.run_id, "work")
        raise ValueError("out of luck")


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as made:
        yield made


async def test_no_secret_is_logged_traced_or_listed(
    postgres_stack: EmbeddedStack, nats_stack: EmbeddedStack, receiver: OtlpReceiver
) -> None:
    settings = {"RUNR_LOG_LEVEL": "debug", "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    async with Stack(Servers(postgres_stack, nats_stack), settings=settings) as stack:
        secrets = {"bootstrap": BOOTSTRAP_TOKEN, "encryption": base64.b64encode(ENCRYPTION_KEY).decode()}
        bodies: dict[str, bytes] = {}
        for transport in TRANSPORTS:
            async with stack.tenant(transport) as client:
                found, shown = await tour(client)
                secrets |= {f"{transport} {name}": secret for name, secret in found.items()}
                bodies |= {f"{transport} {name}": body for name, body in shown.items()}
        metrics = await scraped(stack)
        await asyncio.gather(*(child.stop() for child in stack.children.values()))
        logs = {name: "\n".join(child.log_lines()) for name, child in stack.children.items()}
    assert len(secrets) > 20
    spans = "\n".join(map(repr, receiver.spans))
    assert all(len(log) > 200 for log in logs.values())
    assert len(receiver.spans) > 20
    for name, secret in secrets.items():
        assert len(secret) > 10, name
        for place, text in {**logs, "traces": spans, "metrics": metrics}.items():
            assert secret not in text, f"{name} is in {place}"
        for place, body in bodies.items():
            assert secret.encode() not in body, f"{name} is answered by {place}"


async def tour(client: Rest) -> tuple[dict[str, str], dict[str, bytes]]:
    """Everything that has to do with a secret; the secrets by what they are, and answers that must hold none."""
    secrets = {"token": client.token, "password": PASSWORD, "wrong password": WRONG, "unknown token": UNKNOWN}
    email = f"ann@{client.tenant}"
    await sign_up(client, email)
    refused = await client.call("POST", "/session", {"email": email, "password": WRONG}, token=None)
    signed_in = await client.call("POST", "/session", {"email": email, "password": PASSWORD}, token=None)
    assert (refused.status, signed_in.status) == (401, 201)
    headers: Any = signed_in.headers
    cookies = [line.partition(";")[0].partition("=") for line in headers.getall("Set-Cookie")]
    secrets |= {name: value for name, _, value in cookies}
    secrets["made token"] = (await client.ok("POST", "/tokens", {"name": "made"}))["token"]
    unknown = await client.call("GET", "/projects", token=UNKNOWN)
    async with serving(client, failing):
        (run,) = (await client.send("paid"))["runs"]
        assert (await client.end(run))["status"] == "failed"
    app = "/projects/default/workflows/app"
    secrets["key"] = (await client.ok("GET", f"{app}/signing-key"))["signing_key"]
    await client.ok("POST", f"{app}/rotate-key", {})
    secrets["rotated key"] = (await client.ok("GET", f"{app}/signing-key"))["signing_key"]
    await client.ok("PATCH", "/projects/default", {"config": {"queue_stream": "in"}})
    sink = (await client.ok("GET", app))["queue_bridge_url"].partition("/api")[2]
    secrets["queue token"] = sink.rpartition("/")[2]
    message = {"id": "1-0", "fields": {"a": "b"}}
    assert (await client.call("POST", sink, message, token=None)).status == 200
    wrong_sink = await client.call("POST", f"{sink[:-4]}0000", message, token=None)
    answers = {"refused": refused.body, "unknown": unknown.body, "sink": wrong_sink.body}
    return secrets, answers | await looked_at(client, run)


async def looked_at(client: Rest, run: str) -> dict[str, bytes]:
    """What every route answers that only reads, but the ones that have the key and the address of the sink."""
    known = {"project": "default", "workflow": "pay", "trigger": "0", "run_id": run}
    answers = {}
    for route in ROUTES:
        if route.method == "GET" and not route.path.endswith(("/signing-key", "/stream", "/app")):
            path = re.sub(r"{(\w+)}", lambda place: known.get(place[1], "x"), route.path)
            answers[path] = (await client.call("GET", path)).body
    return answers


async def sign_up(client: Rest, email: str) -> None:
    """A user who is an owner of the client's tenant."""
    ids = UlidFactory(SystemClock(), random.Random())
    connection = await asyncpg.connect(client.database_url)
    try:
        number = await connection.fetchval("select id from rt.tenant where slug = $1", client.tenant)
        user = await create_user(connection, ids, Passwords(), email=email, password=PASSWORD, actor="test")
        await insert_member(connection, id=ids.new(), tenant=number, user=user.id, role="owner")
    finally:
        await connection.close()


async def scraped(stack: Stack) -> str:
    """What all services tell Prometheus."""
    texts = []
    async with aiohttp.ClientSession() as session:
        for child in stack.children.values():
            async with session.get(f"http://{child.health}/metrics") as answer:
                texts.append(await answer.text())
    return "\n".join(texts)
