"""Plans: what is planned while the tables are empty must still read only what it needs when they are full."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from tests.support.engine import database, postgres_url
from tests.support.hand import ALL_PARTS
from tests.support.live_rows import DAY_MS, LiveRows

__all__ = ["database", "postgres_url"]

TABLES = ("live", "gate_rule", "wait", "mark", "idem", "event_ids", "wait_path")
TENANT_TABLES = ("runs", "steps", "ends", "attempts", "events")
MANY = 5_000


@pytest.fixture
async def rows(database: Database, tenant: int, postgres_url: str) -> AsyncIterator[LiveRows]:
    """Rows over a single connection, so that every statement is planned once."""
    pool = Database(postgres_url, name="one", size=1)
    await pool.open()
    yield LiveRows(pool, tenant)
    await pool.close()


async def read(rows: LiveRows) -> int:
    """Rows of the engine's tables that the connection has read so far, from tables and from indexes."""
    await rows.value("select pg_stat_force_next_flush()")
    read = await rows.value(
        """
        select sum(coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0)
                   + (select coalesce(sum(i.idx_tup_read), 0) from pg_stat_user_indexes i where i.relid = t.relid))
        from pg_stat_user_tables t
        where t.schemaname = 'rt' and t.relname = any ($1) or t.schemaname = $2 and t.relname = any ($3)
        """,
        TABLES,
        f"t_{rows.tenant}",
        TENANT_TABLES,
    )
    return int(read)


async def everything(rows: LiveRows) -> None:
    """Each way in which ingest, executors and schedulers touch a run, once."""
    ids, hints, cache = UlidFactory(SystemClock(), random.Random()), Hints(NullPublisher()), DefinitionsCache(None)
    acceptor = EventAcceptor(rows.database, cache, hints, ids)
    owner = await rows.owner()
    run = await rows.start_one(idem=f"s:{owner}")
    other, resumed, alone = await rows.start(3)
    assert await rows.rows(
        tenant_query("executor", "claim_and_load", rows.tenant), owner, [other], 1, rows.tenant, 9_999
    )
    fence: list[Any] = [[resumed], [0], [0], [0]]
    assert await rows.rows(
        tenant_query("executor", "claim_remembered", rows.tenant), owner, rows.tenant, *fence, ["1"], [None], 9_999
    )
    one = tenant_query("executor", "claim_remembered_one", rows.tenant)
    assert await rows.rows(one, owner, rows.tenant, alone, 0, 0, 0, "1", None, 9_999)
    assert await rows.rows(queries("pipeline")["commit_end"], owner, other, 1, 0, 0, 0, 1, "completed", "1", None)
    await rows.rows("delete from rt.live where id = any ($1) returning id", [resumed, alone])
    assert await rows.claim(owner, [run])
    await rows.commit(owner, run, keep=True, st="r")
    await rows.rows(tenant_query("executor", "load", rows.tenant), [run], [True], [True], [0], rows.tenant)
    waits = (
        rows.wait("e", run=run, sid="1", delay_ms=DAY_MS, event="paid", name_h=5, path_h=0, val_h=0),
        rows.wait("s", run=run, sid="2", delay_ms=0),
        rows.wait("x", run=run),
    )
    await rows.commit(owner, run, st="w", steps=2, wait_rows=waits)
    await rows.rows("select * from rt.fire_v1($1, 500)", ALL_PARTS)
    await rows.rows("select * from rt.deliver_v1($1, $2, $3, $4, $5)", [waits[0].id], ["c"], ['"x"'], [None], [run])
    await rows.rows("select * from rt.claim_oldest_v1($1, $2, $3, 1)", owner, [rows.tenant], [1])
    await rows.rows("select * from rt.ready_tenants_v1()")
    await rows.rows(queries("executor")["claim_pooled"], owner, [1, 2], [0, 0], [0, 0], [run, run])
    await rows.rows(queries("scheduler")["unpool"], 100)
    await rows.rows(queries("scheduler")["glance"])
    await rows.rows(queries("scheduler")["backlog"], 100)
    await rows.rows(queries("executor")["held_runs"], owner)
    live = await rows.live(run)
    assert live is not None
    fence = [[run], [rows.tenant], [live["epoch"]], [live["rev"]]]
    await rows.rows(queries("pipeline")["committed"], owner, *fence)
    await rows.rows(queries("executor")["let_go"], owner, [run], [live["epoch"]], True)
    await acceptor.accept(
        rows.tenant, [Incoming(name="paid", data="{}", event_id=str(owner)), Incoming(name="x", data="{}")]
    )
    await RunCanceller(rows.database, hints).cancel(rows.tenant, run)
    await gates(rows, owner)
    await rows.rows("select * from rt.apply_marks_v1(0, 100)")
    await rows.rows("select * from rt.rescue_v1(100)")
    await rows.rows("select * from rt.expire_v1(100)")
    await rows.rows("delete from rt.owner where id = $1 returning id", owner)


async def gates(rows: LiveRows, owner: int) -> None:
    """Each way in which a run passes concurrency gates, one and two, once."""
    for wf, second in ((2, None), (3, 9)):
        holds, waits = await rows.start(2, wf=wf, ga=wf, gb=second)
        await rows.rows("update rt.gate_rule set a = 1, settled = false where wf = $1 returning wf", wf)
        await rows.rows(queries("gates")["grant"], [wf], [second])
        await rows.rows(queries("gates")["blocked"], wf, 0, 1)
        await rows.rows(queries("executor")["claim_hinted_fair"], owner, [holds], [rows.tenant], [1], 1, 1)
        await rows.commit(owner, holds, keep=True, st="r", gates=(wf,) if second is None else (wf, second))
        await rows.rows(queries("gates")["outdated"], wf - 1, 0, 1, 1)
        await rows.rows(queries("gates")["regate"], [waits], [0], [None], [None])
        await rows.rows("delete from rt.live where id = any ($1) returning id", [holds, waits])


async def test_x14_what_was_planned_over_few_rows_reads_no_more_over_many(rows: LiveRows, database: Database) -> None:
    async with database.connection() as connection:
        for table in TABLES:
            await connection.execute(f"alter table rt.{table} set (autovacuum_enabled = off)")
            await connection.execute(f"vacuum analyze rt.{table}")
        for table in TENANT_TABLES:
            await connection.execute(f"alter table t_{rows.tenant}.{table} set (autovacuum_enabled = off)")
            await connection.execute(f"vacuum analyze t_{rows.tenant}.{table}")
    await everything(rows)
    before = await read(rows)
    await everything(rows)
    few = await read(rows) - before
    async with database.connection() as connection:
        await connection.execute(
            f"""
            insert into rt.live (id, tenant, wf, st, max_att, deadline)
            select gen_random_uuid(), {rows.tenant}, 1, 's', 4, rt.now() + interval '1 day'
            from generate_series(1, {MANY});
            insert into rt.live (id, tenant, wf, st, qk, gv, ga, gb, line, max_att, deadline)
            select gen_random_uuid(), {rows.tenant}, 4 + n % 2, 'b', rt.now(), 1, 100 + n, nullif(n % 2, 0), 100 + n, 4,
                   rt.now() + interval '1 day'
            from generate_series(1, {MANY}) n;
            insert into rt.wait (id, run, tenant, kind, sid, due_at)
            select gen_random_uuid(), id, tenant, 's', 'z', rt.now() + interval '1 day' from rt.live where st = 's';
            insert into rt.wait (id, run, tenant, kind, sid, event, name_h, path_h, val_h, cond, due_at)
            select gen_random_uuid(), id, tenant, 'e', 'w', 'other', 7, 8, n, '[]', rt.now() + interval '1 day'
            from (select id, tenant, row_number() over () as n from rt.live where st = 's') l;
            insert into rt.runs (tenant, id, wf, project, created_at, source, event, event_name, event_ts)
            select tenant, id, 1, 1, rt.now(), 'event', gen_random_uuid(), 'e', 0 from rt.live where st = 's';
            insert into rt.steps (tenant, run, sid, seq, name, kind, status, t0, t1)
            select tenant, id, 's', 0, 's', 'r', 'c', rt.now(), rt.now() from rt.live where st = 's';
            insert into rt.attempts (tenant, run, n, k, error, t0, t1)
            select tenant, id, 0, 1, '{{}}', rt.now(), rt.now() from rt.live where st = 's';
            insert into rt.events (tenant, id, name, data, ts, source, effects)
            select tenant, event, 'e', '{{}}', 0, 'api', '{{}}' from rt.runs;
            insert into rt.ends (tenant, run, status, ended, epoch, rev, steps, bytes, att)
            select tenant, gen_random_uuid(), 'completed', rt.now(), 0, 0, 0, 0, 0 from rt.live where st = 's';
            insert into rt.idem (wf, key, run) select 9, 'n:' || n, gen_random_uuid() from generate_series(1, {MANY}) n;
            insert into rt.event_ids (tenant, src, eid, event, accept_id)
            select {rows.tenant}, 'u', 'n' || n, gen_random_uuid(), gen_random_uuid() from generate_series(1, {MANY}) n;
            """
        )
    before = await read(rows)
    await everything(rows)
    assert await read(rows) - before <= 2 * few + 100
