"""Starts that come at the same time are one transaction, and no one's fault, wait or tenant is another's."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from services.core.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from services.core.domain.run import Status
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.group_commit import OVERLOADED
from services.core.engine.hints import Hints
from services.core.engine.start_request import Started, StartRequest
from services.core.engine.start_run import RunStarter
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand, neighbour
from tests.support.live_rows import LiveRows, Recorder, recorder, rows
from tests.support.locks import held_up
from tests.support.overload import until_refused

__all__ = ["database", "postgres_url", "recorder", "rows"]

TOO_LATE_MS = 10**17
IDS = UlidFactory(SystemClock(), random.Random())


def make_starter(database: Database, recorder: Recorder) -> RunStarter:
    return RunStarter(database, DefinitionsCache(None), Hints(recorder), IDS)


@pytest.fixture
def starter(hand: Hand, recorder: Recorder) -> RunStarter:
    return make_starter(hand.database, recorder)


def request(hand: Hand, **fields: Any) -> StartRequest:
    return StartRequest(**{"tenant": hand.tenant, "project": hand.project, "workflow": "work", **fields})


async def together(starter: RunStarter, *requests: StartRequest) -> list[Any]:
    """What became of starts that are asked for at once: the answer, or the error, of each."""
    return await asyncio.gather(*(starter.start(each) for each in requests), return_exceptions=True)


async def transactions(rows: LiveRows) -> int:
    return int(await rows.value("select count(distinct xmin::text) from rt.live"))


@asynccontextmanager
async def held_key(database: Database, workflow: int, key: str) -> AsyncIterator[None]:
    """Somebody has begun to start under this key, and takes its time. It is taken back in the end."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("insert into rt.idem (wf, key, run) values ($1, $2, $3)", workflow, key, uuid4())
        yield
        await transaction.rollback()


async def test_starts_of_two_tenants_are_one_transaction_and_each_is_its_tenants(
    hand: Hand, rows: LiveRows, starter: RunStarter, recorder: Recorder, sealer: Sealer
) -> None:
    async with neighbour(hand, sealer) as other:
        mine = [request(hand, data=f'{{"n":{n}}}') for n in range(20)]
        theirs = [request(other, data=f'{{"n":{n}}}') for n in range(20)]
        answers = await together(starter, *(each for pair in zip(mine, theirs, strict=True) for each in pair))
        assert await transactions(rows) == 1
        for tenant, at in ((hand.tenant, 0), (other.tenant, 1)):
            found = await rows.rows(f"select id, event_data from t_{tenant}.runs order by id")
            assert [row["event_data"] for row in found] == [f'{{"n":{n}}}' for n in range(20)]
            assert [row["id"] for row in found] == [answer.run for answer in answers[at::2]]
        assert recorder.ready == [answer.run for answer in answers]
        stolen = request(hand, project=other.project)
        (refusal,) = await together(starter, stolen)
        assert isinstance(refusal, NotFound), "another tenant's project is none of this one"


async def test_one_that_cannot_be_stored_harms_no_other(hand: Hand, rows: LiveRows, starter: RunStarter) -> None:
    requests = [request(hand, at_ms=TOO_LATE_MS if n == 13 else None) for n in range(40)]
    ends = await together(starter, *requests)
    assert isinstance(ends.pop(13), asyncpg.DataError)
    assert all(end.is_new for end in ends)
    assert await rows.value("select count(*) from rt.live") == 39
    assert await rows.value("select count(*) from rt.runs") == 39


async def test_each_is_refused_for_its_own_reason(hand: Hand, rows: LiveRows, starter: RunStarter) -> None:
    await hand.declare({"name": "work"}, {"name": "paused"})
    async with rows.database.transaction() as connection:
        await connection.execute("update rt.workflows set is_active = false where name = 'paused'")
        await connection.execute(queries("workflows")["bump"], hand.tenant)
    ends = await together(
        starter,
        request(hand),
        request(hand, workflow="paused"),
        request(hand, project="nope"),
        request(hand, workflow="nope"),
        request(hand, tenant=10**6),
        request(hand),
    )
    assert [type(end) for end in ends] == [Started, Conflict, NotFound, NotFound, NotFound, Started]
    assert await transactions(rows) == 1


async def test_definitions_that_have_moved_hold_for_the_batch(
    hand: Hand, rows: LiveRows, starter: RunStarter, sealer: Sealer
) -> None:
    async with neighbour(hand, sealer) as other:
        await together(starter, request(hand), request(other))  # what is declared now is remembered
        await hand.declare({"name": "work", "retries": 7})
        await other.declare({"name": "other"})
        ends = await together(starter, request(hand), request(other), request(other, workflow="other"))
        assert [type(end) for end in ends] == [Started, Conflict, Started]
        assert await rows.value("select max_att from rt.live where id = $1", ends[0].run) == 8


async def test_a_key_that_comes_twice_in_a_batch_is_one_run(hand: Hand, rows: LiveRows, starter: RunStarter) -> None:
    ends = await together(starter, *(request(hand, idempotency_key=f"k{n % 3}") for n in range(9)))
    assert [end.is_new for end in ends] == [True] * 3 + [False] * 6
    assert [end.run for end in ends[3:]] == [end.run for end in ends[:3]] * 2
    assert await rows.value("select count(*) from rt.runs") == 3


async def test_c4_a_batch_whose_answer_was_lost_happened_once(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        async with slow_commits(hand.database, f"t_{hand.tenant}.runs") as stopped:
            starting = asyncio.create_task(
                together(make_starter(pool, recorder), *(request(hand, data=f"[{n}]") for n in range(10)))
            )
            await stopped()
            cut()
            async with hand.database.connection() as watcher:
                await held_up(watcher, 2)  # the lost one, and the same once more
            assert not starting.done()
        ends = await starting
        await pool.close()
    assert all(end.is_new for end in ends)
    assert len({end.run for end in ends}) == 10
    assert await rows.value("select count(*) from rt.live") == 10


async def test_asked_for_again_under_its_id_it_is_the_same_start(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    one, another = make_starter(hand.database, recorder), make_starter(hand.database, recorder)
    first = request(hand, id=IDS.new(), data='{"n":1}')
    twins = await together(one, first, first, request(hand))
    assert twins[0] == twins[1] == Started(first.id or UUID(int=0), True)
    for again in (True, False):  # also where nobody says so: the attempt before was the slower one
        (found,) = await together(another, msgspec.structs.replace(first, again=again))
        assert found == twins[0]
        assert found.fresh is None, "it may have gone on"
    await hand.cancel(twins[0].run)
    assert await together(another, first) == twins[:1]
    assert await rows.status(twins[0].run) is Status.CANCELLED
    keyed = request(hand, id=IDS.new(), idempotency_key="k")
    (new,) = await together(one, keyed)
    (same,) = await together(another, msgspec.structs.replace(keyed, again=True))
    (other,) = await together(another, request(hand, id=IDS.new(), idempotency_key="k", again=True))
    assert (new.is_new, same, other) == (True, new, Started(new.run, False))
    assert await rows.value("select count(*) from rt.runs") == 3
    assert len(recorder.ready) == 3


async def test_the_id_of_another_tenants_run_is_refused_and_tells_nothing(
    hand: Hand, rows: LiveRows, starter: RunStarter, sealer: Sealer
) -> None:
    taken = await hand.start("work")
    async with neighbour(hand, sealer) as other:
        for again in (False, True):
            ends = await together(starter, request(other), request(other, id=taken, again=again), request(other))
            assert [type(end) for end in ends] == [Started, InvalidInput, Started]
        assert await rows.value("select tenant from rt.live where id = $1", taken) == hand.tenant


async def test_c11_whose_key_somebody_holds_waits_and_holds_up_no_other(
    hand: Hand, rows: LiveRows, starter: RunStarter
) -> None:
    workflow = await rows.value("select id from rt.workflows where tenant = $1 and name = 'work'", hand.tenant)
    async with held_key(hand.database, workflow, "s:k"):
        stuck = asyncio.create_task(together(starter, request(hand, idempotency_key="k")))
        await asyncio.sleep(0)
        began = time.monotonic()
        ends = await together(starter, *(request(hand, idempotency_key=f"free{n}") for n in range(30)))
        took_s = time.monotonic() - began
        assert all(end.is_new for end in ends)
        assert took_s < 2, "not the patience of the one that waits"
        (late,) = await together(starter, request(hand))
        assert late.is_new
        assert not stuck.done(), await stuck
    ((waited,),) = await asyncio.gather(stuck)
    assert waited.is_new, "whoever held the key has taken it back"


async def test_slots_delays_and_cancels_are_each_ones_own(
    hand: Hand, rows: LiveRows, starter: RunStarter, recorder: Recorder
) -> None:
    await hand.declare(
        {"name": "work", "cancel_on": [{"event": "stop", "match": "data.k"}]}, {"name": "limited", "concurrency": 1}
    )
    plain, *limited, later, past = await together(
        starter,
        request(hand, data='{"k":1}'),
        request(hand, workflow="limited"),
        request(hand, workflow="limited"),
        request(hand, delay_ms=60_000, data='{"k":2}'),
        request(hand, at_ms=1, data='{"k":3}'),
    )
    assert [await rows.value("select slot from rt.live where id = $1", each.run) for each in limited] == [True, False]
    assert sorted(recorder.ready) == sorted([plain.run, limited[0].run, past.run])
    assert await rows.status(later.run) is Status.DELAYED
    assert later.fresh.due_ms == later.fresh.created_ms + 60_000
    assert past.fresh.due_ms is None
    created = await rows.value("select rt.ms(created_at) from rt.runs where id = $1", later.run)
    over = await rows.value("select rt.ms(deadline) from rt.live where id = $1", later.run)
    assert (later.fresh.created_ms, later.fresh.timeout_ms) == (created, over)
    assert (await hand.send("stop", '{"k":2}')).cancelled == 1
    assert await rows.status(later.run) is Status.CANCELLED
    assert await rows.status(plain.run) is Status.QUEUED


async def test_p5_who_waits_for_long_is_told_to_come_again_and_another_tenant_is_not(
    hand: Hand, rows: LiveRows, starter: RunStarter, sealer: Sealer
) -> None:
    async with neighbour(hand, sealer) as other, hand.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("lock table rt.live in access exclusive mode")
        # As many lanes as there are, and two that wait behind them.
        waiting = []
        async with hand.database.connection() as watcher:
            for lanes in (1, 2, 2, 2):
                waiting.append(asyncio.create_task(together(starter, request(hand))))
                await held_up(watcher, lanes)
        refused, late = await until_refused(lambda: together(starter, request(hand)))
        theirs = asyncio.create_task(together(starter, request(other)))
        (again,) = await asyncio.create_task(together(starter, request(hand)))
        for each in (refused, again):
            assert isinstance(each, Unavailable)
            assert (each.reason, each.metadata["retry_after_s"]) == (OVERLOADED, "1")
        assert not theirs.done()
        await transaction.rollback()
        ends = [end for (end,) in await asyncio.gather(*waiting, theirs)]
        await asyncio.gather(*late)
    assert [end.is_new for end in ends] == [True] * 5


async def test_p12_no_statement_is_made_for_a_tenant(hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
    async with hand.database.transaction() as connection:
        tenants = [await connection.fetchval("select rt.create_tenant($1, '')", f"p12-{n}") for n in range(5)]
        for tenant in tenants:
            await connection.execute(
                "insert into rt.projects (tenant, slug) values ($1, 'p'); ".replace("$1", str(tenant))
                + "insert into rt.workflows (tenant, project, name, definition) "
                f"select tenant, id, 'work', (select definition from rt.workflows where tenant = {hand.tenant} "
                f"and name = 'work') from rt.projects where tenant = {tenant}"
            )
    definitions, requests = DefinitionsCache(None), [request(hand, tenant=tenant, project="p") for tenant in tenants]
    await together(RunStarter(hand.database, definitions, Hints(recorder), IDS), *requests)
    pool = Database(hand.database.dsn, name="one", size=1)
    await pool.open()
    await together(RunStarter(pool, definitions, Hints(recorder), IDS), *requests)
    async with pool.connection() as connection:
        known = [row["statement"] for row in await connection.fetch("select statement from pg_prepared_statements")]
    await pool.close()
    assert any("rt.submit_v1" in statement for statement in known)
    assert not [statement for statement in known for tenant in tenants if f"t_{tenant}." in statement]
    assert await rows.value("select count(*) from rt.live") == 10


@pytest.mark.parametrize("value", [None, "x"])
async def test_a_column_that_came_as_one_value_is_made_whole(rows: LiveRows, value: str | None) -> None:
    spread = "select rt.spread($1::text[], $2::int)"
    async with rows.database.connection() as connection:
        assert await connection.fetchval(spread, [value], 3) == [value] * 3
        assert await connection.fetchval(spread, [value, "y"], 2) == [value, "y"]
        assert await connection.fetchval(spread, [], 0) == []
