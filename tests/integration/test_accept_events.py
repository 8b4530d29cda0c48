"""Accepting events against a real Postgres: order, duplicates, effects, and how waits are found."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.core.domain.matching import event_value, name_hash, wait_key
from services.core.domain.op import Sleep, WaitForEvent
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.cuttable import cuttable
from tests.support.engine import database, postgres_url, slow_commits
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows

__all__ = ["database", "postgres_url", "recorder", "rows"]

ON_A = {"name": "work", "triggers": [{"event": "a"}]}


@pytest.fixture
def acceptor(hand: Hand, recorder: Recorder) -> EventAcceptor:
    return make_acceptor(hand, recorder)


def make_acceptor(hand: Hand, recorder: Recorder) -> EventAcceptor:
    ids = UlidFactory(SystemClock(), random.Random())
    return EventAcceptor(hand.database, DefinitionsCache(None), Hints(recorder), ids)


def event(name: str, data: object = None, id: str | None = None, **fields: Any) -> Incoming:
    return Incoming(name=name, data=json.dumps(data if data is not None else {}), event_id=id, **fields)


async def waiting(hand: Hand, name: str, data: str = "{}", sid: str = "w", **op: Any) -> UUID:
    """A run of `work`, started with this data, that waits for an event."""
    run = await hand.start("work", data)
    assert await hand.answer(run, WaitForEvent(id=sid, name=sid, event=name, **op)) is Status.WAITING
    return run


async def effects(rows: LiveRows, accepted: Accepted) -> Any:
    return json.loads(await rows.value("select effects from rt.events where id = $1", accepted.id))


async def test_of_one_event_the_order_is_cancel_resume_start(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(
        {"name": "work", "triggers": [{"event": "go"}], "cancel_on": [{"event": "go", "match": "data.k"}]}
    )
    cancelled = await waiting(hand, "go", '{"k":1}')
    resumed = await waiting(hand, "go", '{"k":2}')
    (answer,) = await acceptor.accept(hand.tenant, [event("go", {"k": 1})])
    assert (answer.cancelled, answer.resumed, len(answer.runs)) == (1, 1, 1)
    assert await rows.status(cancelled) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.steps where run = $1 and status = 'c'", cancelled) == 0
    assert await rows.status(resumed) is Status.QUEUED
    assert await rows.status(answer.runs[0]) is Status.QUEUED, "an event does not cancel the run that it starts"


async def test_a_resumed_step_has_the_event_as_it_was_sent(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    run = await waiting(hand, "paid")
    data = '{"b": 1.0, "a": 12345678901234567890, "t": "\\u0000\\ud83d\\ude00"}'
    (answer,) = await acceptor.accept(hand.tenant, [Incoming(name="paid", data=data, ts=5)])
    output = await rows.value("select output from rt.steps where run = $1", run)
    assert output == f'{{"id":"{ulid_text(answer.id)}","name":"paid","data":{data},"ts":5}}'


async def test_case_11_dedupe_is_by_id_alone_within_the_tenant(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    requests = [
        [event("a", {"n": 1}, "X")],
        [event("a", {"n": 2}, "X")],
        [event("a", id="X"), event("b", id="X"), event("a", id="Y"), event("a", id="Y")],
        [event("a")],
        [event("a")],
    ]
    answers = [answer for request in requests for answer in await acceptor.accept(hand.tenant, request)]
    assert [answer.duplicate for answer in answers] == [False, True, True, True, False, True, False, False]
    assert {answer.id for answer in answers[:4]} == {answers[0].id}
    assert answers[3].name == "a", "the original's name"
    assert answers[5].id == answers[4].id
    assert all(answer.runs == answers[0].runs for answer in answers[:4])
    assert await rows.value("select count(*) from rt.live") == 4
    assert json.loads(await rows.value("select data from rt.events where id = $1", answers[0].id)) == {"n": 1}


async def test_c9_concurrent_duplicates_on_several_acceptors_happen_once(
    hand: Hand, rows: LiveRows, recorder: Recorder
) -> None:
    await hand.declare(ON_A)
    ids = [f"id-{number}" for number in range(20)]
    dice = random.Random(3)

    async def send() -> list[Accepted]:
        order = dice.sample(ids, len(ids))
        return await make_acceptor(hand, recorder).accept(hand.tenant, [event("a", id=each) for each in order])

    answers = [answer for request in await asyncio.gather(*(send() for _ in range(8))) for answer in request]
    assert sum(not answer.duplicate for answer in answers) == len(ids)
    assert await rows.value("select count(*) from rt.live") == len(ids)
    assert {run for answer in answers for run in answer.runs} == {
        row["id"] for row in await rows.rows("select id from rt.live")
    }
    assert sorted(recorder.ready) == sorted({run for answer in answers for run in answer.runs})


async def test_c9_a_duplicate_waits_for_the_first_and_takes_over_when_that_fails(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    async with rows.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch(
            queries("engine")["begin_accept"], 2_000, hand.tenant, ["u"], ["X"], [uuid4()], [uuid4()], []
        )
        second = asyncio.create_task(acceptor.accept(hand.tenant, [event("a", id="X")]))
        async with asyncio.timeout(10):
            while not await rows.value("select count(*) from pg_locks where not granted"):
                await asyncio.sleep(0.005)
        await transaction.rollback()
    (answer,) = await second
    assert not answer.duplicate
    assert len(answer.runs) == 1


async def test_c9_the_same_acceptance_again_is_no_duplicate_and_changes_nothing(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    events, ids, accept_id = [event("a", id="X"), event("a")], [uuid4(), uuid4()], uuid4()
    first = await acceptor.accept_as(hand.tenant, events, ids, accept_id=accept_id)
    again = await acceptor.accept_as(hand.tenant, events, ids, accept_id=accept_id)
    assert first == again
    assert [answer.duplicate for answer in again] == [False, False]
    assert await rows.value("select count(*) from rt.live") == 2
    assert await rows.value("select count(*) from rt.events") == 2


@pytest.mark.parametrize("id", ["X", None], ids=["with a key", "without a key"])
async def test_c9_an_acceptance_whose_answer_was_lost_is_answered_as_the_first(
    hand: Hand, rows: LiveRows, id: str | None
) -> None:
    await hand.declare(ON_A)
    async with cuttable(hand.database.dsn) as (dsn, cut):
        pool = Database(dsn, name="cut", size=2)
        await pool.open()
        ids = UlidFactory(SystemClock(), random.Random())
        acceptor = EventAcceptor(pool, DefinitionsCache(None), Hints(Recorder()), ids)
        async with slow_commits(hand.database, f"t_{hand.tenant}.events") as stopped:
            accepting = asyncio.create_task(acceptor.accept(hand.tenant, [event("a", id=id)]))
            await stopped()
            cut()
            await asyncio.wait({accepting}, timeout=0.2)
            assert not accepting.done()
        (answer,) = await accepting
        await pool.close()
    assert not answer.duplicate
    assert len(answer.runs) == 1
    assert await rows.value("select count(*) from rt.live") == 1
    assert await rows.value("select count(*) from rt.events") == 1


async def test_keys_of_the_engines_own_cannot_be_suppressed_by_a_sender(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    for src in ("u", "q", "w", "u", "w"):
        await acceptor.accept(hand.tenant, [event("a", id="X", src=src)])
    assert await rows.value("select count(*) from rt.live") == 3


async def test_what_an_event_did_is_stored_with_it_and_answered_to_duplicates(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work"}, {"name": "listener", "triggers": [{"event": "a"}]})
    resumed = [await waiting(hand, "a"), await waiting(hand, "a")]
    (answer,) = await acceptor.accept(hand.tenant, [event("a", id="X")])
    stored = await effects(rows, answer)
    assert (stored["resumed"], stored["cancelled"], stored["runs"]) == (2, 0, [ulid_text(run) for run in answer.runs])
    assert set(stored["resumed_runs"]) == {ulid_text(run) for run in resumed}
    (again,) = await acceptor.accept(hand.tenant, [event("a", id="X")])
    assert (again.duplicate, again.id, again.runs, again.resumed) == (True, answer.id, answer.runs, 2)


async def test_in_one_request_the_order_is_as_given(hand: Hand, rows: LiveRows, acceptor: EventAcceptor) -> None:
    run = await waiting(hand, "paid")
    first, second = await acceptor.accept(hand.tenant, [event("paid", {"n": 1}), event("paid", {"n": 2})])
    assert (first.resumed, second.resumed) == (1, 0)
    output = json.loads(await rows.value("select output from rt.steps where run = $1", run))
    assert output["data"] == {"n": 1}


@pytest.mark.parametrize("between", [0, 3])
async def test_c25_an_event_cancels_a_run_that_an_earlier_one_of_the_request_started(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, between: int
) -> None:
    cancel_on = [{"event": "stop", "match": "data.k"}]
    await hand.declare({"name": "work", "triggers": [{"event": "go"}], "cancel_on": cancel_on})
    request = [event("stop", {"k": 1}), event("go", {"k": 1}), event("go", {"k": 2})]
    request += [event("other")] * between + [event("stop", {"k": 1}), event("go", {"k": 1})]
    answers = await acceptor.accept(hand.tenant, request)
    assert [answer.cancelled for answer in answers] == [0, 0, 0] + [0] * between + [1, 0]
    assert await rows.status(answers[1].runs[0]) is Status.CANCELLED
    assert await rows.status(answers[2].runs[0]) is Status.QUEUED
    assert await rows.status(answers[-1].runs[0]) is Status.QUEUED


async def test_an_event_of_a_request_that_cancels_leaves_nothing_for_a_later_one_to_resume(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    run = await waiting(hand, "paid")
    answers = await acceptor.accept(hand.tenant, [event("stop"), event("paid"), event("stop")])
    assert [(answer.cancelled, answer.resumed) for answer in answers] == [(1, 0), (0, 0), (0, 0)]
    assert await rows.status(run) is Status.CANCELLED


async def test_paused_and_archived_workflows_are_skipped_and_named(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A, {"name": "gone", "triggers": [{"event": "a"}]})
    await hand.declare(ON_A)
    async with rows.database.transaction() as connection:
        await connection.execute("update rt.workflows set is_active = false where name = 'work'")
        await connection.execute(queries("workflows")["bump"], hand.tenant)
    (answer,) = await acceptor.accept(hand.tenant, [event("a")])
    assert answer.runs == ()
    skipped = {(each["workflow"], each["reason"]) for each in (await effects(rows, answer))["skipped"]}
    assert skipped == {("work", "paused"), ("gone", "archived")}


async def test_a_workflow_starts_once_for_an_event_however_many_triggers_hold(
    hand: Hand, acceptor: EventAcceptor
) -> None:
    await hand.declare(
        {
            "name": "work",
            "triggers": [{"event": "a", "if": "event.data.n > 1"}, {"event": "a", "if": "event.data.n > 2"}],
        }
    )
    counts = [len((await acceptor.accept(hand.tenant, [event("a", {"n": n})]))[0].runs) for n in (1, 2, 3)]
    assert counts == [0, 1, 1]


async def test_case_14_idempotency_of_values_keeps_their_types(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({**ON_A, "idempotency": "event.data.k"})
    values: list[dict[str, object]] = [{"k": 1}, {"k": "1"}, {"k": True}, {"k": "true"}, {"k": None}, {}]
    answers = await acceptor.accept(hand.tenant, [event("a", value) for value in values])
    assert len({answer.runs[0] for answer in answers}) == 6
    again = await acceptor.accept(hand.tenant, [event("a", value) for value in values])
    assert [answer.runs == before.runs for answer, before in zip(again, answers, strict=True)] == [True] * 4 + [
        False
    ] * 2
    assert (await acceptor.accept(hand.tenant, [event("a", {"k": 1.0})]))[0].runs == answers[0].runs


async def test_an_idempotency_value_of_any_size_and_shape_is_a_key(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({**ON_A, "idempotency": "event.data"})
    dice = random.Random(1)
    long = {"k": "".join(chr(dice.randint(33, 0x9FFF)) for _ in range(20_000))}
    for value in (long, {"k": "a\0b"}, {"k": [1, {"z": None}]}):
        one, two = await acceptor.accept(hand.tenant, [event("a", value), event("a", value)])
        assert one.runs == two.runs
    different = {"k": long["k"][:-1] + "!"}
    assert (await acceptor.accept(hand.tenant, [event("a", different)]))[0].runs != (
        await acceptor.accept(hand.tenant, [event("a", long)])
    )[0].runs


# ---- waits


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


def keys(name: str, condition: str | None, trigger: object = None) -> dict[str, Any]:
    key = wait_key(name, condition, event_value(id="1", name="a", data=json.dumps(trigger or {}), ts=0))
    return {"name_h": key.name_h, "path": key.path, "path_h": key.path_h, "val_h": key.val_h, "cond": key.condition}


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


async def test_c1_a_cancelled_holder_is_told_and_nobody_else(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, recorder: Recorder
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop"}]})
    leased, idle = await hand.start("work"), await hand.start("work")
    owner = await rows.owner()
    await rows.claim(owner, [leased])
    (answer,) = await acceptor.accept(hand.tenant, [event("stop")])
    assert answer.cancelled == 2
    assert recorder.cancelled == {owner: [leased]}
    assert await rows.status(idle) is Status.CANCELLED


@pytest.mark.parametrize(("window", "cancelled"), [(0, 0), (60_000, 1), (None, 1)])
async def test_a_cancel_on_holds_only_within_its_window(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor, window: int | None, cancelled: int
) -> None:
    run = await hand.start("work")
    wait = rows.wait("x", run=run, event="stop", delay_ms=window, **keys("stop", None))
    async with rows.database.connection() as connection:
        await connection.execute(queries("engine")["open_waits"], *[[value] for value in wait])
    (answer,) = await acceptor.accept(hand.tenant, [event("stop")])
    assert answer.cancelled == cancelled


async def test_a_sleeping_run_is_cancelled_with_all_its_timers(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare({"name": "work", "cancel_on": [{"event": "stop", "timeout": "1d"}]})
    run = await hand.start("work")
    await hand.answer(run, Sleep(id="z", name="z", for_ms=DAY_MS))
    await acceptor.accept(hand.tenant, [event("stop")])
    assert await rows.status(run) is Status.CANCELLED
    assert await rows.value("select count(*) from rt.wait where run = $1", run) == 0


async def test_another_tenants_waits_and_triggers_are_untouched(
    hand: Hand, rows: LiveRows, acceptor: EventAcceptor
) -> None:
    await hand.declare(ON_A)
    run = await waiting(hand, "a")
    other = await rows.value("select rt.create_tenant('other', '')")
    (answer,) = await acceptor.accept(other, [event("a", id="X")])
    assert (answer.runs, answer.resumed) == ((), 0)
    assert not (await acceptor.accept(hand.tenant, [event("a", id="X")]))[0].duplicate
    assert await rows.status(run) is Status.QUEUED


# ---- many


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
