"""What is stored of a run is read in the statement that claims it, and where it cannot be, apart."""

from __future__ import annotations

import asyncio
import json
import logging
from uuid import UUID

import asyncpg
import pytest

from services.core.domain.matching import name_hash
from services.core.domain.op import StepCompleted, WaitForEvent
from services.core.engine.definitions import DefinitionsCache
from services.core.store.queries import tenant_query
from services.executor.lease import Lease
from services.executor.load import load_leases
from tests.support.claiming import Bodies, ended
from tests.support.engine import PATIENT, QuickClock, database, executing, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]


async def test_a_run_that_cannot_be_loaded_stops_no_other_and_is_given_back(
    hand: Hand, rows: LiveRows, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = await rows.start_one(wf=10**6)
    good = [await hand.start("work") for _ in range(3)]
    with caplog.at_level(logging.CRITICAL, "services.executor.owner"):
        options = {"lease": PATIENT, "clock": QuickClock()}
        async with executing(hand.database, {"work": Bodies()}, **options) as (executor, _):
            executor.hint([unknown, *good])
            await ended(rows, good)

            async def given_back() -> bool:
                live = await rows.live(unknown)
                return live is not None and live["epoch"] >= 2

            await until(given_back)
    live = await rows.live(unknown)
    assert live is not None
    assert live["fn_att"] == 0


class TestClaimAndLoad:
    """What is stored of a run is read in the statement that claims it, unless the run has moved meanwhile."""

    QUERY = tenant_query("executor", "claim_and_load", 0)

    async def claimed(
        self, hand: Hand, run: UUID, query: str = "", *, most: int = 16_384
    ) -> tuple[asyncpg.Record, Lease]:
        owner = await LiveRows(hand.database, hand.tenant).owner()
        query = (query or self.QUERY).replace("t_0.", f"t_{hand.tenant}.")
        async with hand.database.connection() as connection:
            (row,) = await connection.fetch(query, owner, [run], 1, hand.tenant, most)
            (lease,) = await load_leases(connection, DefinitionsCache(None), [row])
        return row, lease

    async def waiting(self, hand: Hand) -> UUID:
        await hand.declare({"name": "work"})
        run = await hand.start("work", '{"n":1}')
        await hand.answer(run, StepCompleted(id="a", name="a", output='"one"'))
        await hand.fail(run)
        await hand.fire(run)
        await hand.answer(run, WaitForEvent(id="go", name="go", event="go", timeout_ms=DAY_MS))
        async with hand.database.connection() as connection:
            await connection.execute(
                "insert into rt.wait (id, run, tenant, kind, sid, seq, event, name_h, path_h, val_h) "
                "values (gen_random_uuid(), $1, $2, 'e', 'no', 9, 'no', $3, 0, 1)",
                run,
                hand.tenant,
                name_hash("no"),
            )
        await hand.send("go")
        return run

    async def test_it_reads_what_a_look_afterwards_does(self, hand: Hand) -> None:
        run = await self.waiting(hand)
        row, lease = await self.claimed(hand, run)
        assert row["version"] is not None
        async with hand.database.connection() as connection:
            live = await connection.fetch("select * from rt.live where id = $1", run)
            (again,) = await load_leases(connection, DefinitionsCache(None), live)
        assert lease.memo.steps == again.memo.steps
        assert (lease.memo.order, lease.open_steps) == ('"a","go"', {"no": "e"})
        names = ("source", "event", "test", "parent", "trace", "started_ms", "steps", "size", "attempts", "rev", "mail")
        assert [getattr(lease, name) for name in names] == [getattr(again, name) for name in names]
        assert lease.reached_ms <= again.reached_ms

    async def test_what_is_delivered_after_the_statement_began_is_read_apart(self, hand: Hand, rows: LiveRows) -> None:
        run = await self.waiting(hand)
        held_up = self.QUERY.replace(
            "with c as materialized (select * from rt.claim_hinted_v1($1, $2, $3))",
            "with w as materialized (select length(pg_advisory_xact_lock(17)::text) as nothing), c as materialized "
            "(select f.* from w cross join lateral rt.claim_hinted_v1($1, $2, $3 + w.nothing) f)",
        )
        assert held_up != self.QUERY
        async with hand.database.transaction() as connection:
            await connection.execute("select pg_advisory_xact_lock(17)")
            claiming = asyncio.create_task(self.claimed(hand, run, held_up))
            await until(
                lambda: rows.value("select count(*) > 0 from pg_locks where not granted and locktype = 'advisory'")
            )
            await hand.send("no")
        row, lease = await claiming
        assert row["owner"] is not None
        assert row["version"] is None
        assert (lease.memo.order, lease.open_steps) == ('"a","go","no"', {})

    async def test_a_run_of_another_tenant_is_read_apart(self, hand: Hand) -> None:
        run = await self.waiting(hand)
        owner = await LiveRows(hand.database, hand.tenant).owner()
        query = self.QUERY.replace("t_0.", f"t_{hand.tenant}.")
        async with hand.database.connection() as connection:
            (row,) = await connection.fetch(query, owner, [run], 1, hand.tenant + 1, 16_384)
            assert row["version"] is None
            (lease,) = await load_leases(connection, DefinitionsCache(None), [row])
        assert lease.memo.order == '"a","go"'

    @pytest.mark.parametrize(("most", "apart"), [(100, False), (99, True)])
    @pytest.mark.parametrize("what", ["memory", "event"])
    async def test_c11_what_is_much_is_read_when_the_claim_is_committed(
        self, hand: Hand, what: str, most: int, apart: bool
    ) -> None:
        await hand.declare({"name": "work"})
        run = await hand.start("work", json.dumps({"pad": "x" * 90}) if what == "event" else "{}")
        if what == "memory":
            await hand.answer(run, StepCompleted(id="a", name="a", output='"' + "x" * 98 + '"'))
            await hand.fail(run)
            await hand.fire(run)
        async with hand.database.connection() as connection:
            much = "greatest(octet_length(r.event_data), b.bytes)"
            query = f"select {much} from rt.runs r join rt.live b using (id) where id = $1"
            size = await connection.fetchval(query, run)
        row, lease = await self.claimed(hand, run, most=most + size - 100)
        assert (row["version"] is None) is apart
        assert lease.memo.order == ('"a"' if what == "memory" else "")
