"""Projects' queue streams in JetStream: every message is accepted once or becomes a dead letter (rulings C9, C23)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from services.core.domain.event import EventLimits
from services.core.engine.dedupe import Accepted
from services.core.engine.deliver_message import Entry, MessageDeliverer
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.projects import ProjectRow
from services.embedded.stack import EmbeddedStack
from tests.support.hand import Hand
from tests.support.queues import (
    GUARD_S,
    Producer,
    bridging,
    consumer_of,
    events,
    make_deliverer,
    numbered,
    producer,
    producing,
    project,
    runs,
    stream,
    until_runs,
)
from tests.support.waiting import until

__all__ = ["producer", "project", "stream"]

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_each_message_becomes_an_event_and_starts_a_run(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    await producer.publish(stream, b'{"order_id": "o-1", "big": 123456789012345678901234567890}', b"[1]", b"words")
    await producer.publish(stream, b"\xff\x00", b"")
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        found = await until_runs(hand, 5)
        await producer.settled(stream, consumer_of(replica, project))
    assert {run["source"] for run in found} == {"queue"}
    stored = await events(hand)
    assert [event["data"] for event in stored] == [
        '{"order_id": "o-1", "big": 123456789012345678901234567890}',
        '{"data":[1]}',
        '{"data":"words"}',
        '{"data_base64":"/wA="}',
        '{"data":""}',
    ]
    assert {(event["name"], event["source"], event["project"]) for event in stored} == {
        (f"queue/{stream}", "queue", project.id)
    }
    assert [json.loads(event["effects"])["runs"] != [] for event in stored] == [True] * 5


async def test_what_dies_between_commit_and_acknowledgement_is_accepted_once(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    reached = asyncio.Event()

    async def stand_still(point: str) -> None:
        assert point == "before ack"
        reached.set()
        await asyncio.Event().wait()

    await producer.make(stream)
    await producer.publish(stream, *numbered(5))
    async with bridging(hand.database, nats_url, nats_prefix, probe=stand_still) as dying:
        await asyncio.wait_for(reached.wait(), GUARD_S)
        await dying.kill()
    before = await until_runs(hand, 5)
    assert await producer.unacknowledged(stream, consumer_of(dying, project)) == 5
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await producer.settled(stream, consumer_of(replica, project))
    assert await runs(hand) == before
    assert len(await events(hand)) == 5


async def test_replicas_share_the_messages_and_a_killed_one_loses_none(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream, workqueue=True)
    async with (
        bridging(hand.database, nats_url, nats_prefix) as one,
        bridging(hand.database, nats_url, nats_prefix) as other,
    ):
        await one.until("1 streams")
        await other.until("1 streams")
        publishing = asyncio.create_task(producer.publish(stream, *numbered(300)))
        await until(lambda: runs(hand))
        await one.kill()
        await publishing
        await producer.settled(stream, consumer_of(other, project))
    assert Counter(json.loads(event["data"])["n"] for event in await events(hand)) == Counter(range(300))
    assert len(await runs(hand)) == 300
    assert (await producer.jetstream.stream_info(stream)).state.messages == 0


async def test_a_message_that_no_event_can_hold_is_a_dead_letter_and_blocks_nothing(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    large = json.dumps({"text": "x" * 2_000}).encode()
    await producer.make(stream)
    headers = {"X-Tenant": "ümlaut", "Nats-Msg-Id": "m-1", "traceparent": TRACE, "Status": "503"}
    await producer.publish(stream, b'{"n": 0}')
    await producer.publish(stream, large, headers=headers)
    await producer.publish(stream, b'{"n": 1}')
    small = make_deliverer(hand.database, limits=EventLimits(event_bytes=1_000))
    async with bridging(hand.database, nats_url, nats_prefix, deliverer=small) as replica:
        (letter,) = await producer.dead(nats_prefix, 1)
        await producer.settled(stream, consumer_of(replica, project))
    assert [json.loads(event["data"])["n"] for event in await events(hand)] == [0, 1]
    assert letter.data == large
    assert letter.subject == f"{nats_prefix}.dead.{hand.tenant}.default.{stream}"
    kept = dict(letter.headers or {})
    entry = kept.pop("Runr-Entry")
    size = len(f"queue/{stream}") + len(large) - 1  # one blank does not count
    assert kept.pop("Nats-Msg-Id") == f"{project.id}/nats:{stream}/{entry}"
    assert entry.endswith("-2")
    assert kept == {
        "X-Tenant": "ümlaut",
        "Original-Nats-Msg-Id": "m-1",
        "traceparent": TRACE,
        "Status": "503",
        "Runr-Reason": "TOO_LARGE",
        "Runr-Error": f"data: name and data have {size} bytes, at most 1000 are allowed",
        "Runr-Tenant": "default",
        "Runr-Project": "default",
        "Runr-Stream": stream,
        "Runr-Subject": f"{stream.lower()}.made",
        "Runr-Deliveries": "1",
    }


class Failing(MessageDeliverer):
    """Fails for messages that say so, as a fault of the engine would; remembers what it was asked to accept."""

    asked: list[list[str]]

    async def deliver_all(
        self, tenant: int, project: int, queue_stream: str, entries: Sequence[Entry], *, trace: str | None = None
    ) -> list[Accepted]:
        self.asked = [*getattr(self, "asked", []), [entry.event.data for entry in entries]]
        if any("poison" in entry.event.data for entry in entries):
            raise RuntimeError("a secret of ours")
        return await super().deliver_all(tenant, project, queue_stream, entries, trace=trace)


async def test_a_message_that_fails_again_and_again_dies_alone(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    await producer.publish(stream, b'{"n": 0}', b'{"poison": 1}', b'{"n": 1}')
    failing = make_deliverer(hand.database, kind=Failing)
    assert isinstance(failing, Failing)
    async with bridging(hand.database, nats_url, nats_prefix, deliverer=failing) as replica:
        (letter,) = await producer.dead(nats_prefix, 1)
        await producer.settled(stream, consumer_of(replica, project))
    assert [json.loads(event["data"]) for event in await events(hand)] == [{"n": 0}, {"n": 1}]
    assert failing.asked.count(['{"poison": 1}']) == 3
    assert letter.data == b'{"poison": 1}'
    headers = letter.headers or {}
    assert (headers["Runr-Reason"], headers["Runr-Deliveries"]) == ("INTERNAL", "3")
    assert "secret" not in str(headers)


async def test_while_the_database_is_away_nothing_is_lost_and_nothing_dies(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    own = Database(hand.database.dsn, name="away", size=4)
    await own.open()
    await producer.make(stream)
    async with bridging(own, nats_url, nats_prefix, max_deliver=1) as replica:
        await replica.until("1 streams")
        await own.close()
        await producer.publish(stream, *numbered(10))
        await replica.until("1 streams, 1 of them not consumed")
        assert await runs(hand) == []
        await own.open()
        await until_runs(hand, 10)
        await producer.settled(stream, consumer_of(replica, project))
    await own.close()
    assert await producer.buried(nats_prefix) == 0


async def test_nats_may_go_and_come_back(
    hand: Hand,
    project: ProjectRow,
    producer: Producer,
    stream: str,
    nats_stack: EmbeddedStack,
    nats_url: str,
    nats_prefix: str,
) -> None:
    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await producer.publish(stream, *numbered(5))
        await until_runs(hand, 5)
        await asyncio.to_thread(nats_stack.stop, "nats")
        await until(lambda: not replica.bus.connected)
        await asyncio.to_thread(nats_stack.start, "nats")
        async with producing(nats_url) as again:
            await again.publish(stream, *numbered(5))
            await until_runs(hand, 10)
            await again.settled(stream, consumer_of(replica, project))


async def test_a_stream_that_is_made_later_is_found(
    hand: Hand,
    project: ProjectRow,
    producer: Producer,
    stream: str,
    nats_url: str,
    nats_prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    looks = await producer.client.subscribe(f"$JS.API.STREAM.INFO.{stream}")
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        for _ in range(4):
            await looks.next_msg(timeout=GUARD_S)
        await replica.until("1 streams, 1 of them not consumed")
        await producer.make(stream)
        await producer.publish(stream, *numbered(1))
        await until_runs(hand, 1)
        await replica.until("1 streams")
    said = [record.getMessage() for record in caplog.records if "queue stream" in record.getMessage()]
    assert said == ["queue stream: there is no such stream"]


async def test_a_stream_that_is_made_anew_begins_anew(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    """Its sequence begins at 1 again: another message 1 is no duplicate of the first."""
    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await producer.publish(stream, *numbered(1))
        await until_runs(hand, 1)
        await producer.settled(stream, consumer_of(replica, project))
        await producer.jetstream.delete_stream(stream)
        await producer.make(stream)
        await producer.publish(stream, *numbered(1))
        await until_runs(hand, 2)


async def test_a_drained_replica_leaves_its_messages_to_others_at_once(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()

    async def wait(_point: str) -> None:
        reached.set()
        await gate.wait()

    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix, probe=wait, ack_wait_s=300.0) as leaving:
        await producer.publish(stream, *numbered(1))
        await asyncio.wait_for(reached.wait(), GUARD_S)
        await producer.publish(stream, *numbered(3))  # these are with it too, and not begun
        name = consumer_of(leaving, project)

        async def are_with_it() -> bool:
            return await producer.unacknowledged(stream, name) == 4

        await until(are_with_it)
        draining = asyncio.create_task(leaving.bridge.drain())
        await asyncio.sleep(0)
        assert not draining.done(), "a message that is accepted is acknowledged before the process ends"
        gate.set()
        await asyncio.wait_for(draining, GUARD_S)
    assert len(await runs(hand)) == 1
    async with bridging(hand.database, nats_url, nats_prefix, ack_wait_s=300.0) as replica:
        await until_runs(hand, 4)
        await producer.settled(stream, consumer_of(replica, project))


async def test_projects_of_one_tenant_get_each_message_once_each(
    hand: Hand, sealer: Sealer, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    async with hand.database.transaction() as connection:
        change_to = ProjectChange(queue_stream=f"nats:{stream}")
        await create_project(connection, sealer, hand.tenant, "billing", change_to)
    # Where the stream lives may be said or left out.
    await hand.declare({"name": "bill", "triggers": [{"queue": f"nats:{stream}"}]}, project="billing")
    await producer.make(stream)
    await producer.publish(stream, *numbered(3))
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await replica.until("2 streams")
        found = await until_runs(hand, 6)
        await producer.settled(stream, consumer_of(replica, project))
    assert Counter(run["wf"] for run in found).most_common() == [(found[0]["wf"], 3), (found[-1]["wf"], 3)]
    assert len(await events(hand)) == 6


async def test_another_project_of_the_tenant_hears_a_message_as_any_event(
    hand: Hand, sealer: Sealer, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    async with hand.database.transaction() as connection:
        await create_project(connection, sealer, hand.tenant, "audit", ProjectChange())
    await hand.declare({"name": "note", "triggers": [{"event": f"queue/{stream}"}]}, project="audit")
    await producer.make(stream)
    await producer.publish(stream, *numbered(1))
    async with bridging(hand.database, nats_url, nats_prefix):
        await until_runs(hand, 2)


async def test_a_sender_cannot_suppress_a_message(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    await producer.publish(stream, *numbered(1))
    (stored,) = [await producer.jetstream.get_msg(stream, 1)]
    assert stored.time is not None
    async with bridging(hand.database, nats_url, nats_prefix):
        await until_runs(hand, 1)
    async with hand.database.connection() as connection:
        src, eid = await connection.fetchrow("select src::text, eid from rt.event_ids where tenant = $1", hand.tenant)
    assert (src, eid.startswith(f"{project.id}/nats:{stream}/")) == ("q", True)
    again = await hand.send("order.created", event_id=eid)
    assert not again.duplicate
