"""The sink of the queue bridge: who may deliver, and that a message is accepted once (engine section 3)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from services.core.domain.errors import InvalidInput, Malformed, TooLarge, Unauthenticated, Unavailable
from services.core.domain.event import EventLimits
from services.core.domain.queue_token import queue_token
from services.core.engine.projects import ProjectChange, create_project, update_project
from services.core.engine.signing_keys import new_key, open_keys
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, set_key
from services.ingest.queue_sink import QueueSink
from tests.support.hand import Hand
from tests.support.queues import events, make_deliverer, runs

GRACE_MS = 3_600_000


class Sink:
    """The sink, and the address of the project `default` at it."""

    def __init__(self, hand: Hand, sealer: Sealer, sink: QueueSink) -> None:
        self.hand = hand
        self.sealer = sealer
        self.sink = sink

    async def project(self, slug: str = "default") -> ProjectRow:
        async with self.hand.database.connection() as connection:
            return await get_project(connection, self.hand.tenant, slug)

    async def change(self, **values: str) -> None:
        async with self.hand.database.transaction() as connection:
            await update_project(connection, self.sealer, self.hand.tenant, "default", ProjectChange(**values))

    async def token(self) -> str:
        project = await self.project()
        keys = open_keys(self.sealer, project, GRACE_MS)
        assert keys is not None
        assert project.queue_stream is not None
        return queue_token(keys.current, project.slug, project.queue_stream)

    async def rotate(self) -> None:
        project = await self.project()
        key = new_key(self.sealer, self.hand.tenant, project.id)
        async with self.hand.database.transaction() as connection:
            await set_key(connection, self.hand.tenant, project.id, key.sealed, key.fingerprint, rotate=True)

    async def deliver(self, token: str | None = None, entry: str = "1-0", fields: Any = None, **where: str) -> Any:
        address = {"tenant": "default", "project": "default", **where}
        body = fields if isinstance(fields, bytes) else json.dumps(fields if fields is not None else {}).encode()
        return await self.sink.deliver(token=token or await self.token(), entry_id=entry, fields=body, **address)


@pytest.fixture
async def sink(hand: Hand, sealer: Sealer) -> Sink:
    deliverer = make_deliverer(hand.database, limits=EventLimits(event_bytes=1_000))
    made = Sink(hand, sealer, QueueSink(hand.database, sealer, deliverer, key_grace_ms=GRACE_MS))
    await made.change(queue_stream="orders")
    await hand.declare({"name": "charge", "triggers": [{"queue": "orders"}]})
    return made


async def test_a_message_is_accepted_once_however_often_it_is_delivered(sink: Sink) -> None:
    first = await sink.deliver(entry="1700-0", fields={"payload": '{"order_id": "o-1"}'})
    again = await asyncio.gather(*(sink.deliver(entry="1700-0", fields={"other": n}) for n in range(5)))
    other = await sink.deliver(entry="1700-1", fields={"order_id": "o-1"})
    assert (first.name, first.duplicate, len(first.runs)) == ("queue/orders", False, 1)
    assert {(each.id, each.duplicate, each.runs) for each in again} == {(first.id, True, first.runs)}
    assert not other.duplicate
    assert {run["source"] for run in await runs(sink.hand)} == {"queue"}
    assert [event["data"] for event in await events(sink.hand)] == ['{"order_id": "o-1"}'] * 2


async def test_concurrent_deliveries_start_one_run(sink: Sink) -> None:
    answers = await asyncio.gather(*(sink.deliver(fields={"n": 1}) for _ in range(20)))
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 19
    assert len({answer.id for answer in answers}) == 1
    assert len(await runs(sink.hand)) == 1


async def test_entries_of_other_streams_and_projects_are_other_messages(sink: Sink) -> None:
    first = await sink.deliver()
    await sink.change(queue_stream="refunds")
    second = await sink.deliver()
    assert (first.name, second.name, second.duplicate) == ("queue/orders", "queue/refunds", False)


async def test_only_the_address_itself_is_let_in(sink: Sink) -> None:
    token = await sink.token()
    async with sink.hand.database.transaction() as connection:
        await create_tenant(connection, "acme", "")
        await create_project(connection, sink.sealer, sink.hand.tenant, "shop", ProjectChange(queue_stream="orders"))
        await create_project(connection, sink.sealer, sink.hand.tenant, "plain", ProjectChange())
    strangers: list[dict[str, str]] = [
        {"token": "0" * 40},
        {"token": token[:-1]},
        {"token": "ä\0"},
        {"token": token, "project": "shop"},
        {"token": token, "project": "plain"},
        {"token": token, "project": "nowhere"},
        {"token": token, "project": "default\0"},
        {"token": token, "tenant": "acme"},
        {"token": token, "tenant": "nobody"},
    ]
    said = set()
    for stranger in strangers:
        with pytest.raises(Unauthenticated) as refused:
            await sink.deliver(**stranger)
        said.add(refused.value.message)
    assert said == {"this is not the address of a queue bridge"}
    assert await events(sink.hand) == []
    await sink.deliver(token, tenant="central")


@pytest.mark.parametrize("stream", ["", "refunds", "nats:orders"])
async def test_an_address_is_of_one_stream(sink: Sink, stream: str) -> None:
    token = await sink.token()
    await sink.change(queue_stream=stream)
    with pytest.raises(Unauthenticated):
        await sink.deliver(token)


async def test_a_stream_in_jetstream_has_no_address(sink: Sink) -> None:
    await sink.change(queue_stream="nats:ORDERS")
    with pytest.raises(Unauthenticated):
        await sink.deliver()


async def test_a_project_that_serves_no_workflows_and_a_disabled_tenant_have_none(sink: Sink) -> None:
    token = await sink.token()
    await sink.hand.declare()
    await sink.change(trigger_type="http")
    with pytest.raises(Unauthenticated):
        await sink.deliver(token)
    await sink.change(trigger_type="workflow")
    await sink.deliver(token)
    async with sink.hand.database.connection() as connection:
        await connection.execute("update rt.tenant set disabled_at = rt.now()")
    with pytest.raises(Unauthenticated):
        await sink.deliver(token)


async def test_a_rotated_key_makes_a_new_address_and_the_old_one_works_on_for_the_grace(sink: Sink) -> None:
    old = await sink.token()
    await sink.rotate()
    new = await sink.token()
    assert old != new
    assert not (await sink.deliver(old, entry="1-0")).duplicate
    assert (await sink.deliver(new, entry="1-0")).duplicate
    async with sink.hand.database.connection() as connection:
        await connection.execute(
            f"update t_{sink.hand.tenant}.projects set rotated_at = rotated_at - $1 * interval '1 ms'", GRACE_MS
        )
    with pytest.raises(Unauthenticated):
        await sink.deliver(old)
    await sink.deliver(new)


@pytest.mark.parametrize(
    ("entry", "fields", "kind", "path"),
    [
        ("", {}, InvalidInput, "entry_id"),
        ("a\0", {}, InvalidInput, "entry_id"),
        ("x" * 256, {}, InvalidInput, "entry_id"),
        ("1-0", b"{", Malformed, "fields"),
        ("1-0", [1], InvalidInput, "fields"),
        ("1-0", {"text": "x" * 1_000}, TooLarge, "data"),
    ],
)
async def test_what_is_no_message_is_refused_with_the_reason(
    sink: Sink, entry: str, fields: Any, kind: type[InvalidInput], path: str
) -> None:
    with pytest.raises(kind) as refused:
        await sink.deliver(entry=entry, fields=fields)
    assert [fault.path for fault in refused.value.errors] == [path]
    assert await events(sink.hand) == []


async def test_a_key_that_does_not_open_is_our_fault_and_the_message_may_come_again(
    sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    token = await sink.token()
    foreign = QueueSink(sink.hand.database, Sealer(b"x" * 32), make_deliverer(sink.hand.database), key_grace_ms=0)
    with pytest.raises(Unavailable):
        await foreign.deliver("default", "default", token, "1-0", b"{}")
    assert "a signing key does not open" in caplog.text


async def test_without_the_database_nothing_is_acknowledged(sink: Sink) -> None:
    token = await sink.token()
    away = Database(sink.hand.database.dsn, name="away", size=1)
    closed = QueueSink(away, sink.sealer, make_deliverer(away), key_grace_ms=0)
    with pytest.raises(Unavailable):
        await closed.deliver("default", "default", token, "1-0", b"{}")
