"""The doors that end a wait, deliver and fire: what they memoize and whom they wake, and which one wins."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.doors import ALL_PARTS, DELIVER, deliver, delivery, fire, open_waits, st, waiting
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]


async def test_a_delivery_memoizes_the_step_at_its_place_and_wakes_the_run(rows: LiveRows) -> None:
    run, wait = await waiting(rows, seq=5, sid="paid")
    event = uuid4()
    (got,) = await deliver(rows, wait, event=event)
    assert (got["run"], got["owner"], got["waits"]) == (run, None, [wait])
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"], live["bytes"]) == ("q", 1, len('"got"'))
    step = await rows.row(
        "select sid, seq, kind::text as kind, status::text as status, output, event from rt.steps where run = $1", run
    )
    assert step is not None
    assert tuple(step) == ("paid", 5, "e", "c", '"got"', event)


async def test_two_deliveries_of_one_wait_are_one(rows: LiveRows) -> None:
    run, wait = await waiting(rows)
    answers = await asyncio.gather(*(deliver(rows, wait) for _ in range(10)))
    assert sum(len(answer) for answer in answers) == 1
    live = await rows.live(run)
    assert live is not None
    assert live["mail"] == 1
    assert await rows.value("select count(*) from rt.steps where run = $1", run) == 1


async def test_c5_a_delivery_to_a_leased_run_moves_its_mail_and_nothing_else(rows: LiveRows) -> None:
    owner = await rows.owner()
    run = await rows.held(owner)
    wait = rows.wait("e", run=run, delay_ms=DAY_MS)
    await open_waits(rows, wait)
    before = dict(await rows.live(run) or {})
    (got,) = await deliver(rows, wait.id)
    assert got["owner"] == owner
    after = dict(await rows.live(run) or {})
    assert {key for key in before if before[key] != after[key]} == {"mail", "bytes"}


async def test_c29_one_event_resumes_every_open_wait_of_a_run_each_once(rows: LiveRows) -> None:
    waits = [rows.wait("e", sid=sid, delay_ms=DAY_MS) for sid in ("one", "two")]
    run = await rows.rest("w", waits)
    event = uuid4()
    (got,) = await deliver(rows, *(wait.id for wait in waits), event=event)
    assert set(got["waits"]) == {wait.id for wait in waits}
    assert await rows.value("select count(*) from rt.steps where run = $1 and event = $2", run, event) == 2


async def test_a_timeout_memoizes_null_and_a_backoff_nothing(rows: LiveRows) -> None:
    timed_out, _ = await waiting(rows, delay_ms=0)
    backing_off = await rows.rest("d", [rows.wait("b", delay_ms=0)])
    await fire(rows)
    steps = await rows.rows("select status::text as status, output, event from rt.steps where run = $1", timed_out)
    assert [tuple(step) for step in steps] == [("c", None, None)]
    assert await rows.value("select count(*) from rt.steps where run = $1", backing_off) == 0
    assert [await st(rows, run) for run in (timed_out, backing_off)] == ["q", "q"]


async def test_the_end_of_a_cancel_window_wakes_nobody(rows: LiveRows) -> None:
    run = await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS)])
    await open_waits(rows, rows.wait("x", run=run, delay_ms=0))
    await fire(rows)
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["mail"]) == ("s", 0)
    assert await rows.value("select count(*) from rt.wait where run = $1 and kind = 'x'", run) == 0


async def test_c14_of_an_event_and_a_timeout_at_one_instant_exactly_one_wins(
    rows: LiveRows, database: Database
) -> None:
    runs = await rows.start(200)
    owner = await rows.owner()
    await rows.claim(owner, runs)
    waits = {run: rows.wait("e", run=run, delay_ms=0) for run in runs}
    for run, wait in waits.items():
        await rows.commit(owner, run, st="w", steps=1, wait_rows=(wait,))
    delivered = 0

    async def events() -> None:
        nonlocal delivered
        for run in runs:
            async with database.transaction() as connection:
                await connection.execute(queries("engine")["lock_runs"], rows.tenant, [run])
                got = await connection.fetch(DELIVER, *delivery(waits[run].id))
                delivered += len(got)

    async def timeouts() -> None:
        while await rows.value("select fired from rt.fire_v1($1, 3)", ALL_PARTS):
            await asyncio.sleep(0)

    await asyncio.gather(events(), timeouts())
    outcomes = await rows.rows(
        "select output is not null as got, count(*) as n from rt.steps where run = any ($1) group by 1", runs
    )
    counts = {row["got"]: row["n"] for row in outcomes}
    assert sum(counts.values()) == 200
    assert counts.get(True, 0) == delivered
    assert await rows.value("select count(*) from rt.live where id = any ($1) and st = 'q' and mail = 1", runs) == 200


async def test_s2_a_parked_run_stays_parked_over_an_event_and_not_over_its_own_timer(rows: LiveRows) -> None:
    park, wait = rows.wait("p", delay_ms=0), rows.wait("e", delay_ms=DAY_MS)
    run = await rows.rest("p", [park, wait])
    await deliver(rows, wait.id)
    assert await st(rows, run) == "p"
    await fire(rows)
    assert await st(rows, run) == "q"


_STATES = {
    "waits": "update rt.live set prio = 5 where id = $1 returning 1",
    "is held": "update rt.live set st = 'r', owner = 7 where id = $1 returning 1",
    "is queued": "update rt.live set st = 'q', qk = rt.now() where id = $1 returning 1",
    "is parked": "update rt.live set st = 'p' where id = $1 returning 1",
    "stands behind a gate": "update rt.live set ga = 1, gv = 1, gb = 2 where id = $1 returning 1",
    "has a slot": "update rt.live set ga = 1, gv = 1, slot = true where id = $1 returning 1",
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("state", _STATES)
async def test_one_event_for_one_wait_comes_to_the_same_as_a_batch(rows: LiveRows, state: str, named: bool) -> None:
    event, found = uuid4(), []
    alone = "select run, owner, ga, gb from rt.deliver_event_v1($1, $2, $3, $4)"
    for by_itself in (True, False):
        wait = rows.wait("e", sid="paid", seq=3, name="pay" if named else None, fields='{"event":"x"}', delay_ms=DAY_MS)
        run = await rows.rest("w", [wait])
        assert await rows.value(_STATES[state], run)
        if by_itself:
            (got,) = await rows.rows(alone, wait.id, run, '"göt"', event)
        else:
            (got,) = await rows.rows(DELIVER, [wait.id], ["c"], ['"göt"'], [None], [event])
        assert got["run"] == run
        live = dict(await rows.live(run) or {})
        step = await rows.row("select * from rt.steps where run = $1", run)
        assert step is not None
        assert step["t0"] < step["t1"]
        waited = (live["qk"] is None, await rows.value("select count(*) from rt.wait where run = $1", run))
        others = {"id", "part", "qk", "owner", "started", "taken", "deadline"}
        kept = {key: value for key, value in live.items() if key not in others}
        stored = {key: value for key, value in step.items() if key not in ("run", "t0", "t1")}
        found.append((got["owner"], got["ga"], got["gb"], waited, kept, stored))
        assert await rows.rows(alone, wait.id, run, "1", event) == []
    assert found[0] == found[1]
