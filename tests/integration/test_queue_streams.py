"""Which streams are consumed for which projects, and what becomes of a consumer when its project changes."""

from __future__ import annotations

import pytest

from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.sealing import Sealer
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project
from tests.support.hand import Hand, playing
from tests.support.queues import (
    Producer,
    bridging,
    change_stream,
    consumer_of,
    numbered,
    producer,
    project,
    runs,
    stream,
    until_runs,
)
from tests.support.waiting import until

__all__ = ["producer", "project", "stream"]


async def test_streams_follow_the_projects_without_waiting_for_a_look(
    hand: Hand, sealer: Sealer, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await hand.declare({"name": "charge", "triggers": [{"queue": stream}]})
    await producer.make(stream)
    await producer.publish(stream, *numbered(2))
    async with bridging(hand.database, nats_url, nats_prefix, look_s=60.0) as replica:
        await replica.until("0 streams")
        project = await change_stream(hand, sealer, f"nats:{stream}")
        replica.bus.publish_defs(hand.tenant)
        await until_runs(hand, 2)
        await change_stream(hand, sealer, "")
        replica.bus.publish_defs(hand.tenant)
        await replica.until("0 streams")
        await producer.unasked(stream, consumer_of(replica, project))
        await producer.publish(stream, *numbered(1))
        left = await producer.unasked(stream, consumer_of(replica, project))
        assert (left.num_pending, left.num_ack_pending) == (1, 0)
        assert len(await runs(hand)) == 2
        # It goes on where it was: nothing comes twice, nothing is left out.
        await change_stream(hand, sealer, f"nats:{stream}")
        replica.bus.publish_defs(hand.tenant)
        await until_runs(hand, 3)


async def test_the_consumer_of_a_deleted_project_is_deleted(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix, forget_s=0.0) as replica:
        await replica.until("1 streams")
        assert await producer.consumer(stream, consumer_of(replica, project)) is not None
        async with hand.database.connection() as connection:
            await connection.execute(f"delete from t_{hand.tenant}.projects where id = $1", project.id)
            await connection.execute("update rt.defs_version set v = v + 1 where tenant = $1", hand.tenant)

        async def is_gone() -> bool:
            return await producer.consumer(stream, consumer_of(replica, project)) is None

        await until(is_gone)


@pytest.mark.parametrize(
    ("tenants", "consumed"), [(None, "none"), ("acme", "all"), ("*", "all"), ("other, acme", "all"), ("x", "none")]
)
async def test_a_tenant_consumes_only_streams_that_are_open_to_it(
    database: Database,
    sealer: Sealer,
    producer: Producer,
    stream: str,
    nats_url: str,
    nats_prefix: str,
    tenants: str | None,
    consumed: str,
) -> None:
    await producer.make(stream, metadata=None if tenants is None else {"runr.tenants": tenants})
    async with database.transaction() as connection:
        acme = await create_tenant(connection, "acme", "")
        await create_project(connection, sealer, acme, "shop", ProjectChange(queue_stream=f"nats:{stream}"))
        project = await get_project(connection, acme, "shop")
    async with playing(database, acme, "shop") as hand, bridging(database, nats_url, nats_prefix) as replica:
        await hand.declare({"name": "charge", "triggers": [{"queue": stream}]})
        await replica.until("1 streams" if consumed == "all" else "1 streams, 1 of them not consumed")
        found = await producer.consumer(stream, consumer_of(replica, project))
    assert (found is not None) is (consumed == "all")


async def test_a_stream_that_is_closed_to_a_tenant_is_left(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix, check_again_s=0.2) as replica:
        await replica.until("1 streams")
        info = await producer.jetstream.stream_info(stream)
        await producer.jetstream.update_stream(info.config.evolve(metadata={"runr.tenants": "acme"}))
        await replica.until("1 streams, 1 of them not consumed")
        await producer.publish(stream, *numbered(1))
        await producer.jetstream.update_stream(info.config)
        await replica.until("1 streams")
        await until_runs(hand, 1)


async def test_the_engines_own_streams_are_nobodys(hand: Hand, sealer: Sealer, nats_url: str, nats_prefix: str) -> None:
    await change_stream(hand, sealer, f"nats:{nats_prefix.upper()}_READY")
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await replica.until("1 streams, 1 of them not consumed")


async def test_a_disabled_tenant_is_not_worked_for(
    hand: Hand, project: ProjectRow, producer: Producer, stream: str, nats_url: str, nats_prefix: str
) -> None:
    await producer.make(stream)
    async with bridging(hand.database, nats_url, nats_prefix) as replica:
        await replica.until("1 streams")
        async with hand.database.connection() as connection:
            await connection.execute("update rt.tenant set disabled_at = rt.now() where id = $1", hand.tenant)
        await replica.until("0 streams")
        assert await producer.consumer(stream, consumer_of(replica, project)) is not None
