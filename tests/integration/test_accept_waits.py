"""Accepting events against a real Postgres: which waits an event finds, one or many."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from services.core.domain.matching import name_hash
from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.runtime.ids import ulid_text
from services.core.store.queries import queries
from tests.support.acceptor import acceptor, effects, event, keys, make_acceptor, waiting
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows

__all__ = ["acceptor", "database", "postgres_url", "recorder", "rows"]


async def test_a_condition_decides_whom_an_event_resumes(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    condition = "async.data.k == event.data.k && async.data.sum > 10"
    runs = [await waiting(hand, "paid", f'{{"k":{k}}}', condition=condition) for k in (1, 2)]
    small, foreign, right = await acceptor.accept(
        hand.tenant,
        [event("paid", {"k": 1, "sum": 10}), event("paid", {"k": 3, "sum": 11}), event("paid", {"k": 1, "sum": 11})],
    )
    assert [small.resumed, foreign.resumed, right.resumed] == [0, 0, 1]
    assert [await rows.status(run) for run in runs] == [Status.QUEUED, Status.WAITING]


async def test_waits_that_no_equality_finds_are_found_all_the_same(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    conditions = ["async.data.n > 5", "async.data.n == 7 || async.data.n == 8", "!(async.data.n == 1)", None]
    runs = [await waiting(hand, "paid", condition=condition) for condition in conditions]
    (answer,) = await acceptor.accept(hand.tenant, [event("paid", {"n": 7})])
    assert answer.resumed == 4
    assert {await rows.status(run) for run in runs} == {Status.QUEUED}


async def test_case_18_a_match_that_is_absent_on_both_sides_holds(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    match = "event.data.order_id == async.data.order_id"
    run = await waiting(hand, "paid", condition=match)
    other, same = await acceptor.accept(hand.tenant, [event("paid", {"order_id": "o-1"}), event("paid")])
    assert (other.resumed, same.resumed) == (0, 1)
    assert await rows.status(run) is Status.QUEUED


async def test_c29_two_waits_of_one_run_are_both_resumed_by_one_event(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    waits = [rows.wait("e", sid=sid, delay_ms=DAY_MS, event="paid", **keys("paid", None)) for sid in ("one", "two")]
    await hand.declare({"name": "work"})
    run = await rows.rest("w", waits, run=await hand.start("work"))
    (answer,) = await acceptor.accept(hand.tenant, [event("paid")])
    assert answer.resumed == 2
    assert await rows.value("select count(*) from rt.steps where run = $1 and event = $2", run, answer.id) == 2
    assert (await effects(rows, answer))["resumed_runs"] == [ulid_text(run)]


async def test_c5_an_event_for_a_leased_run_moves_only_its_mail(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, recorder: Recorder
) -> None:
    owner = await rows.owner()
    run = await hand.start("work")
    await rows.claim(owner, [run])
    async with rows.database.connection() as connection:
        wait = rows.wait("e", run=run, sid="w", delay_ms=DAY_MS, event="paid", **keys("paid", None))
        await connection.execute(queries("engine")["open_waits"], *[[value] for value in wait])
    before = dict(await rows.live(run) or {})
    (answer,) = await acceptor.accept(hand.tenant, [event("paid")])
    assert answer.resumed == 1
    after = dict(await rows.live(run) or {})
    assert {key for key in before if before[key] != after[key]} == {"mail", "bytes"}
    assert run not in recorder.ready


async def test_equal_hashes_of_different_names_and_values_are_told_apart(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    collide = keys("paid", "async.data.k == event.data.k", {"k": 1})
    name = rows.wait("e", sid="name", delay_ms=DAY_MS, event="refunded", **collide)
    value = rows.wait(
        "e",
        sid="value",
        delay_ms=DAY_MS,
        event="paid",
        **{**collide, "cond": keys("paid", "async.data.k == 2")["cond"]},
    )
    run = await rows.rest("w", [name, value], run=await hand.start("work"))
    (answer,) = await acceptor.accept(hand.tenant, [event("paid", {"k": 1})])
    assert answer.resumed == 0
    assert await rows.status(run) is Status.WAITING


async def plan_of(rows: LiveRows, tenant: int, data: object) -> tuple[list[str], float]:
    """Kinds of scan of rt.wait in the plan that finds the waits of an event `paid`, and the rows they touched."""
    sought = keys("paid", "async.data.k == event.data.k", data)
    async with rows.database.connection() as connection:
        await connection.execute(
            f"prepare find(int, int[], bigint[], bigint[], bigint[], int) as {queries('engine')['find_waits']}"
        )
        try:
            text = await connection.fetchval(
                "explain (analyze, format json) execute find("
                f"{tenant}, '{{0,0}}', '{{{sought['name_h']},{sought['name_h']}}}', "
                f"'{{0,{sought['path_h']}}}', '{{0,{sought['val_h']}}}', 500)"
            )
        finally:
            await connection.execute("deallocate find")
    scans: list[str] = []
    touched = 0.0

    def walk(node: dict[str, Any]) -> None:
        nonlocal touched
        if node.get("Relation Name") == "wait":
            scans.append(node["Node Type"])
            touched += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for child in node.get("Plans", ()):
            walk(child)

    walk(json.loads(text)[0]["Plan"])
    return scans, touched


async def fill_waits(rows: LiveRows, tenant: int, count: int) -> None:
    """Waits of `count` runs for `paid`, each for its own value of data.k."""
    made = [keys("paid", "async.data.k == event.data.k", {"k": number}) for number in range(count)]
    await rows.rows(
        """
        insert into rt.wait (id, run, tenant, kind, sid, event, name_h, path_h, val_h, cond, due_at)
        select gen_random_uuid(), gen_random_uuid(), $1, 'e', 'w', 'paid', $2, u.path_h, u.val_h, u.cond,
               rt.now() + interval '1 day'
        from unnest($3::bigint[], $4::bigint[], $5::text[]) u(path_h, val_h, cond) returning 1
        """,
        tenant,
        name_hash("paid"),
        [each["path_h"] for each in made],
        [each["val_h"] for each in made],
        [each["cond"] for each in made],
    )


async def test_ten_thousand_waits_for_one_name_cost_an_event_no_more_than_ten(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await fill_waits(rows, hand.tenant, 10)
    _, few = await plan_of(rows, hand.tenant, {"k": 5})
    await rows.rows("delete from rt.wait returning 1")
    await fill_waits(rows, hand.tenant, 10_000)
    for statement in ("select 1", "analyze rt.wait"):
        async with rows.database.connection() as connection:
            await connection.execute(statement)
        scans, many = await plan_of(rows, hand.tenant, {"k": 5})
        assert scans
        assert not any("Seq" in scan for scan in scans)
        assert many == few == 1
    run = await waiting(hand, "paid", '{"k":20000}', condition="async.data.k == event.data.k")
    (answer,) = await acceptor.accept(hand.tenant, [event("paid", {"k": 20_000})])
    assert answer.resumed == 1
    assert await rows.status(run) is Status.QUEUED


async def test_case_15_a_wait_and_its_event_at_one_time_have_two_outcomes_and_no_third(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    count = 60
    condition = "async.data.k == event.data.k"
    starts = [await hand.start("work", f'{{"k":{number}}}') for number in range(count)]
    dice = random.Random(15)

    async def wait(run: UUID) -> None:
        await asyncio.sleep(dice.uniform(0, 0.02))
        await hand.answer(run, WaitForEvent(id="w", name="w", event="paid", condition=condition, timeout_ms=DAY_MS))

    async def send(number: int) -> int:
        await asyncio.sleep(dice.uniform(0, 0.02))
        (answer,) = await make_acceptor(hand, recorder).accept(hand.tenant, [event("paid", {"k": number})])
        return answer.resumed

    answers: Sequence[Any] = await asyncio.gather(*map(wait, starts), *map(send, range(count)))
    resumed = sum(answers[count:])
    statuses = [await rows.status(run) for run in starts]
    assert set(statuses) <= {Status.WAITING, Status.QUEUED}
    assert statuses.count(Status.QUEUED) == resumed
    got = await rows.value("select count(*) from rt.steps where run = any ($1) and event is not null", starts)
    assert got == resumed
    for run, status in zip(starts, statuses, strict=True):
        if status is Status.WAITING:
            await hand.fire(run)
    assert {await rows.status(run) for run in starts} == {Status.QUEUED}
    assert await rows.value("select count(*) from rt.steps where run = any ($1)", starts) == count


async def test_one_event_hits_many_runs_while_others_are_committed(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    """Lock order: two acceptors with overlapping runs and an executor that is busy with the same ones."""
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    runs = [await waiting(hand, "paid") for _ in range(30)]
    paid = [make_acceptor(hand, recorder).accept(hand.tenant, [event("paid")]) for _ in range(4)]
    stop = make_acceptor(hand, recorder).accept(hand.tenant, [event("stop")])
    answers = [answer for request in await asyncio.gather(*paid, stop) for answer in request]
    assert sum(answer.cancelled for answer in answers) == 30
    assert {await rows.status(run) for run in runs} == {Status.CANCELLED}
    got = await rows.value("select count(*) from rt.steps where event is not null and run = any ($1)", runs)
    assert sum(answer.resumed for answer in answers) == got
