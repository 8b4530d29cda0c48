"""Hints are only hints: NATS may be away, doubled, late, or say nonsense."""

from __future__ import annotations

import asyncio
import operator
import random
from uuid import uuid4

import nats

from services.core.bus.payload import encode_mail, encode_pool, encode_ready, encode_timers
from services.core.bus.subjects import PARTITIONS, Subjects, partition_of
from services.core.runtime.ids import ulid_uuid
from tests.support.orders import Sides
from tests.support.stack import Servers, Stack

AWAY_S = 10.0
FAR_MS = 1 << 42

_ENDED = """select count(*) from rt.ends
            where status = 'completed' and tenant = (select id from rt.tenant where slug = $1)"""


async def ended(stack: Stack, sides: Sides) -> list[int]:
    """How many orders of each side have completed."""
    return [await stack.value(_ENDED, side.rest.tenant) for side in sides.sides]


async def test_orders_go_on_without_nats(servers: Servers, stack: Stack, sides: Sides) -> None:
    placing = asyncio.create_task(sides.place(over_s=AWAY_S + 2))
    await sides.begun(0.1)
    await servers.stop_nats()
    before = await ended(stack, sides)
    # Every service stays in the game meanwhile.
    await stack.ready()
    await asyncio.sleep(AWAY_S)
    # Half of the orders of each side end before it is back.
    rest = sides.sides[0].rest
    halves = [earlier + side.count / 2 for earlier, side in zip(before, sides.sides, strict=True)]
    await rest.until(lambda: ended(stack, sides), lambda now: all(map(operator.ge, now, halves)))
    await servers.start_nats()
    await placing
    runs = await sides.completed()
    assert not sides.repeated
    assert not sides.faults
    assert all(run["attempts"] == [] for run in runs)


async def test_doubled_late_and_senseless_hints_do_no_harm(servers: Servers, stack: Stack, sides: Sides) -> None:
    client = await nats.connect(servers.nats.urls["nats"])
    subjects = Subjects(stack.nats_prefix)
    chance = random.Random(7)
    placing = asyncio.create_task(sides.place())
    owner = await stack.value("select id from rt.owner where kind = 'executor' and not dead limit 1")

    # A flag, no cancellation: the client's flush may swallow one.
    done = asyncio.Event()

    async def shout() -> None:
        while not done.is_set():
            known = [ulid_uuid(run) for run in sides.runs]
            for run in [*chance.sample(known, min(20, len(known))), uuid4()]:
                await client.publish(subjects.ready(partition_of(run)), encode_ready([run, run], ""))
                due = chance.choice([0, 1, FAR_MS])
                await client.publish(subjects.timer(partition_of(run)), encode_timers(run, [due]))
                await client.publish(subjects.mail(owner), encode_mail([run, run]))
            await client.publish(subjects.pool, encode_pool([1 << 30, *range(20)]))
            garbage = chance.randbytes(chance.randrange(64))
            for subject in (
                subjects.ready(chance.randrange(PARTITIONS)),
                subjects.timer(chance.randrange(PARTITIONS)),
                subjects.cancel(owner),
                subjects.mail(owner),
                subjects.pool,
                subjects.defs(chance.randrange(5)),
            ):
                await client.publish(subject, garbage)
            await client.flush()
            await asyncio.sleep(0.005)

    shouting = asyncio.create_task(shout())
    try:
        await placing
        runs = await sides.completed()
    finally:
        done.set()
        await shouting
        await client.close()
    assert not sides.repeated
    assert not sides.faults
    assert all(run["attempts"] == [] for run in runs)
