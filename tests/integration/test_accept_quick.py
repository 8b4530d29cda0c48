"""Events that are accepted in one call of the database: only what is as it was prepared for, else nothing changes."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from services.core.domain.op import WaitForEvent
from services.core.engine.accept_batch import AcceptTransaction
from services.core.engine.accept_outcome import Outcome
from services.core.engine.accept_plan import AcceptRequest, Incoming
from services.core.engine.accept_quick import QuickAccept
from services.core.engine.dedupe import Accepted, begin_accept
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.fan_out import INLINE_BYTES
from services.core.engine.group_commit import Waiting
from services.core.engine.run_traces import RunTraces
from services.core.runtime.ids import UlidFactory, ids_from, ulid_text
from services.core.runtime.off_loop import OffLoop
from services.core.store.database import Database
from services.core.store.events import EventReader
from tests.support.engine import database, postgres_url
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, rows

__all__ = ["database", "postgres_url", "rows"]

ON_A = {"name": "work", "triggers": [{"event": "a"}]}
WAITS = {"name": "waits"}
EQUAL = "async.data.k == event.data.k"


class MovableClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def unix_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1_000


class Quick:
    """A QuickAccept of one tenant, and the way step by step beside it."""

    def __init__(self, database: Database, tenant: int) -> None:
        self.clock, self.watch = MovableClock(), MovableClock()
        self.ids = UlidFactory(self.clock, random.Random())
        self.tenant = tenant
        self._database = database
        self._definitions = DefinitionsCache(None)
        parts = (database, self._definitions, self.ids, RunTraces.off(database), OffLoop("test"), self.watch)
        self._quick = QuickAccept(*parts)
        self._steps = AcceptTransaction(*parts)
        self.outcome = Outcome()

    async def set_clock(self) -> None:
        """The database's time."""
        async with self._database.connection() as connection:
            self.clock.now_ms = await connection.fetchval("select rt.ms(rt.now())")

    async def learn(self, *names: str) -> None:
        """Know the definitions and the paths as they are now."""
        await self.set_clock()
        events = [Incoming(name=name, data="{}") for name in names]
        async with self._database.transaction() as connection:
            await self._definitions.get(connection, self.tenant)
            _, context = await begin_accept(
                connection, self.tenant, events, [], [], offered=frozenset(), again=False, lock_ms=100
            )
        self._quick.learn(self.tenant, events, context.paths)

    async def accept(self, *events: Incoming, accept_id: UUID | None = None) -> list[Accepted] | None:
        """In one call; None where that is not possible."""
        self.outcome = Outcome()
        request = self._request(events, accept_id)
        found = await self._quick.accept(self.tenant, [request], self.outcome, patient=False)
        return None if found is None else found[request.accept_id]

    async def by_steps(self, *events: Incoming) -> list[Accepted]:
        """Step by step."""
        item = Waiting[AcceptRequest, list[Accepted]](
            self._request(events, None), key=0, size=0, asked_at=0.0, tell=lambda _: None
        )
        self.outcome = await self._steps.carry_out(self.tenant, [item], again=True, patient=False)
        return self.outcome.answers[0][1]

    def _request(self, events: Sequence[Incoming], accept_id: UUID | None) -> AcceptRequest:
        ids = ids_from(self.ids.block(len(events)), len(events))
        return AcceptRequest(self.tenant, events, ids, accept_id or uuid4(), None, 0, again=False)


@pytest.fixture
async def quick(hand: Hand) -> Quick:
    await hand.declare(ON_A, WAITS)
    quick = Quick(hand.database, hand.tenant)
    await quick.set_clock()
    return quick


def event(name: str, data: Mapping[str, Any] | None = None, **fields: Any) -> Incoming:
    return Incoming(name=name, data=json.dumps(data or {}), **fields)


async def waits(hand: Hand, k: Any, condition: str | None = EQUAL) -> UUID:
    run = await hand.start("waits", json.dumps({"k": k}))
    op = WaitForEvent(id="w", name="w", event="go", timeout_ms=DAY_MS, condition=condition)
    await hand.answer(run, op)
    return run


async def stored(rows: LiveRows) -> tuple[int, ...]:
    """How many rows there are of all that accepting writes."""
    tables = ("events", "event_ids", "runs", "steps", "live", "wait")
    return tuple([await rows.value(f"select count(*) from rt.{table}") for table in tables])


async def test_nothing_is_accepted_quickly_before_anything_is_known(quick: Quick) -> None:
    assert await quick.accept(event("a")) is None


@pytest.mark.parametrize("k", ["x", 1, -1.5, True, None, "\0ä\U0001f600", [1]])
async def test_both_ways_lead_to_the_same(hand: Hand, rows: LiveRows, quick: Quick, k: Any) -> None:
    named = [await waits(hand, k), await waits(hand, k)]
    anybody = [await waits(hand, k, None), await waits(hand, k, None)]
    other = [await waits(hand, "another")]
    await quick.learn("go")
    ended = []
    for way, run, waiting in ((quick.accept, named[0], anybody[0]), (quick.by_steps, named[1], anybody[1])):
        for each in (*named, *anybody):  # the other way's runs are out of sight
            hidden = each not in (run, waiting)
            await rows.rows(
                "update rt.wait set tenant = $2 where run = $1 returning 1", each, -1 if hidden else hand.tenant
            )
        found = await way(event("go", {"k": k}))
        if k == [1]:  # a condition of more than a scalar is judged
            assert found is None
            return
        (accepted,) = found or []
        effects = (await EventReader(hand.database).one(hand.tenant, accepted.id)).effects
        assert effects is not None
        assert sorted(effects.resumed_runs) == sorted([run, waiting])
        effects = dataclasses.replace(effects, resumed_runs=())
        outputs = [await rows.value("select output from rt.steps where run = $1", each) for each in (run, waiting)]
        told = [json.loads(output) for output in outputs]
        assert [each.pop("id") for each in told] == [ulid_text(accepted.id)] * 2
        assert {each.pop("ts") for each in told} == {
            await rows.value("select ts from rt.events where id = $1", accepted.id)
        }
        steps = await rows.rows(
            "select kind::text, status::text, event from rt.steps where run = any ($1)", [run, waiting]
        )
        assert [tuple(each) for each in steps] == [("e", "c", accepted.id)] * 2
        assert sorted(quick.outcome.aftermath.ready) == sorted([run, waiting])
        ended.append((accepted.resumed, accepted.runs, effects, told))
    assert ended[0] == ended[1]
    assert (await rows.live(other[0]))["st"] == "w"  # type: ignore[index]


async def test_a_start_and_a_resumption_are_one_call(hand: Hand, rows: LiveRows, quick: Quick) -> None:
    run = await waits(hand, 1)
    await quick.learn("a", "go")
    first, second = await quick.accept(event("a", event_id="1"), event("go", {"k": 1})) or []
    assert len(first.runs) == 1
    assert (second.resumed, second.runs) == (1, ())
    assert quick.outcome.aftermath.ready == [*first.runs, run]
    assert await rows.value("select count(distinct xmin::text) from rt.events") == 1
    effects = await rows.value("select effects from rt.events where id = $1", first.id)
    assert json.loads(effects) == {"runs": [ulid_text(first.runs[0])], "resumed": 0, "cancelled": 0}
    assert (await rows.live(first.runs[0]))["st"] == "q"  # type: ignore[index]


async def test_the_first_of_two_equal_events_resumes(hand: Hand, quick: Quick) -> None:
    await waits(hand, 1)
    await quick.learn("go")
    found = await quick.accept(event("go", {"k": 1}), event("go", {"k": 1}))
    assert found is not None
    assert [each.resumed for each in found] == [1, 0]


async def test_a_duplicate_changes_nothing_and_frees_the_ids_beside_it(rows: LiveRows, quick: Quick) -> None:
    await quick.learn("a")
    assert await quick.accept(event("a", event_id="1")) is not None
    before = await stored(rows)
    assert await quick.accept(event("a", event_id="2"), event("a", event_id="1")) is None
    assert await stored(rows) == before
    assert await quick.accept(event("a", event_id="2")) is not None


async def test_a_condition_that_asks_for_more_is_judged_step_by_step(hand: Hand, rows: LiveRows, quick: Quick) -> None:
    await waits(hand, 1, f"{EQUAL} && async.data.n > 1")
    await quick.learn("go", "a")
    before = await stored(rows)
    assert await quick.accept(event("go", {"k": 1, "n": 1}, event_id="1")) is None
    assert await stored(rows) == before
    assert await quick.accept(event("a"), event("go", {"k": 2})) is None  # not asked for again so soon
    assert await quick.accept(event("a")) is not None
    quick.watch.now_ms += 10_001
    assert await quick.accept(event("go", {"k": 2})) is not None


async def test_an_event_that_cancels_goes_step_by_step(hand: Hand, rows: LiveRows, quick: Quick) -> None:
    await hand.declare({**ON_A, "cancel_on": [{"event": "stop"}]})
    await quick.learn("a", "stop")
    (started,) = await quick.accept(event("a")) or []
    assert await quick.accept(event("stop")) is None
    assert await rows.live(started.runs[0]) is not None
    await quick.by_steps(event("stop"))
    assert await rows.live(started.runs[0]) is None


async def test_other_definitions_than_were_prepared_for(hand: Hand, rows: LiveRows, quick: Quick) -> None:
    await quick.learn("a")
    await hand.declare(ON_A, WAITS, {"name": "more", "triggers": [{"event": "a"}]})
    before = await stored(rows)
    assert await quick.accept(event("a", event_id="1")) is None
    assert await stored(rows) == before
    await quick.learn("a")
    (accepted,) = await quick.accept(event("a", event_id="1")) or []
    assert len(accepted.runs) == 2


async def test_a_path_that_nobody_knew_of(hand: Hand, quick: Quick) -> None:
    await quick.learn("go")
    run = await waits(hand, 1)
    assert await quick.accept(event("go", {"k": 1})) is None
    await quick.learn("go")
    (accepted,) = await quick.accept(event("go", {"k": 1})) or []
    assert accepted.resumed == 1
    assert quick.outcome.aftermath.ready == [run]


async def test_a_wait_that_many_share_goes_step_by_step(hand: Hand, quick: Quick) -> None:
    for _ in range(17):
        await waits(hand, 1)
    await quick.learn("go")
    assert await quick.accept(event("go", {"k": 1})) is None


async def test_a_definition_with_an_idempotency_key_goes_step_by_step(hand: Hand, quick: Quick) -> None:
    await hand.declare({**ON_A, "idempotency": "event.data.k"})
    await quick.learn("a")
    assert await quick.accept(event("a", {"k": 1})) is None


async def test_a_clock_that_is_off_stamps_no_event(quick: Quick) -> None:
    await quick.learn("a")
    quick.clock.now_ms += 1_500
    assert await quick.accept(event("a")) is None
    await quick.set_clock()
    assert await quick.accept(event("a")) is not None


@pytest.mark.parametrize("size", [400_000, 450_000])
async def test_c24_what_is_very_much_to_deliver_is_delivered_by_steps(
    hand: Hand, rows: LiveRows, quick: Quick, size: int
) -> None:
    for k in range(5):
        for _ in range(16):
            await waits(hand, k)
    await quick.learn("go")
    before = await stored(rows)
    done = await quick.accept(*[event("go", {"k": k, "pad": "x" * size}) for k in range(5)])
    if 80 * size < INLINE_BYTES:
        assert done is not None
        assert [each.resumed for each in done] == [16] * 5
    else:
        assert done is None
        assert await stored(rows) == before
