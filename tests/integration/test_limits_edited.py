"""Concurrency limits that are edited while runs wait, run, rest and come back (engine section 5, rulings C16): they
come and go, change places, keys and numbers, and hold all the time; nobody waits for ever before a gate of yesterday.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from services.core.domain.op import RunCompleted, Sleep
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.regate import Regater
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.executor.incarnation import Incarnation
from services.scheduler.duties.gates import SweepGates
from tests.support import invariants
from tests.support.engine import EMPTIED, executing
from tests.support.fake_function import Answer, Request, completed
from tests.support.gate_life import GateLife, Limit, gate_life
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.locks import held_up
from tests.support.tenancy import BOOTSTRAP_TOKEN
from tests.support.waiting import until

NUMBERS = st.integers(1, 3)
LIMITS = st.lists(st.tuples(NUMBERS, st.sampled_from([None, "a", "b"])), max_size=2)
DATA = st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.integers(0, 1)})
PLACES = st.integers(0, 30)


class AnyEdits(RuleBasedStateMachine):
    """Limits are edited, and runs go their ways, in any order."""

    url: str
    key: Sealer

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._closing = contextlib.AsyncExitStack()
        self._life = self._do(self._open())

    async def _open(self) -> GateLife:
        pool = Database(self.url, name="edits", size=4)
        await pool.open()
        self._closing.push_async_callback(pool.close)
        async with pool.connection() as connection:
            await connection.execute(";".join(f"delete from rt.{table}" for table in EMPTIED))
        tenant = await ensure_bootstrap(pool, self.key, BOOTSTRAP_TOKEN)
        return await self._closing.enter_async_context(gate_life(pool, tenant))

    def _do(self, work: Awaitable[Any]) -> Any:
        async def awaited() -> Any:
            return await work

        return self._runner.run(awaited())

    @initialize(limits=LIMITS)
    def begin(self, limits: Sequence[Limit]) -> None:
        self._do(self._life.declare(limits))

    @rule(limits=LIMITS)
    def declare(self, limits: Sequence[Limit]) -> None:
        self._do(self._life.declare(limits))

    @rule(data=DATA, count=st.integers(1, 4))
    def start(self, data: dict[str, int], count: int) -> None:
        for _ in range(count):
            self._do(self._life.start(data))

    @rule(places=st.lists(PLACES, min_size=1, max_size=4))
    def claim(self, places: list[int]) -> None:
        for place in places:
            self._do(self._life.claim(place))

    @rule(place=PLACES, op=st.sampled_from(["step", "fail", "sleep", "complete"]), told=st.booleans())
    def answer(self, place: int, op: str, told: bool) -> None:
        self._do(self._life.answer(place, op, told=told))

    @rule(place=PLACES)
    def give_back(self, place: int) -> None:
        self._do(self._life.give_back(place))

    @rule(place=PLACES)
    def wake(self, place: int) -> None:
        self._do(self._life.wake(place))

    @rule(place=PLACES)
    def cancel(self, place: int) -> None:
        self._do(self._life.cancel(place))

    @rule(place=PLACES)
    def retry(self, place: int) -> None:
        self._do(self._life.retry(place))

    @rule()
    def die(self) -> None:
        self._do(self._life.die())

    @rule()
    def sweep(self) -> None:
        self._do(self._life.sweep())

    def teardown(self) -> None:
        try:
            self._do(self._life.settle(self.url))
        finally:
            self._do(self._closing.aclose())
            self._runner.close()


def test_c16_whatever_is_edited_no_limit_is_passed_and_every_run_comes_to_its_end(
    postgres_url: str, sealer: Sealer
) -> None:
    class Edits(AnyEdits):
        url, key = postgres_url, sealer

    often = settings(max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(Edits, settings=often)


async def held(hand: Hand, rows: LiveRows) -> list[UUID]:
    """The runs that are invoked: what was let through and can be had is taken."""
    for row in await rows.rows("select id from rt.live where st = 'q' order by id"):
        await hand.hold(UUID(int=row["id"].int))
    return [UUID(int=row["id"].int) for row in await rows.rows("select id from rt.live where st = 'r' order by id")]


async def edited(hand: Hand, rows: LiveRows, *limits: Any) -> None:
    """Limits are declared, and the scheduler has passed."""
    await hand.declare({"name": "work", "concurrency": list(limits)})
    await swept(rows)


async def swept(rows: LiveRows) -> None:
    hints = Hints(NullPublisher())
    await SweepGates(Gates(rows.database, hints), Regater(rows.database, DefinitionsCache(None), hints)).run_once()


async def starts(hand: Hand, *data: dict[str, int]) -> list[UUID]:
    return [await hand.start("work", json.dumps(each)) for each in data]


A, B = {"k": 1, "p": 1}, {"k": 2, "p": 1}
K, P = {"limit": 1, "key": "event.data.k"}, {"limit": 1, "key": "event.data.p"}


@pytest.mark.parametrize(
    ("before", "after"),
    [([], [1]), ([], [K]), ([5], [5, K]), ([P], [K]), ([K], [P]), ([5, K], [P]), ([K, 5], [1]), ([], [K, P])],
    ids=str,
)
async def test_a_limit_that_comes_counts_what_runs_already(
    hand: Hand, rows: LiveRows, before: list[Any], after: list[Any]
) -> None:
    await edited(hand, rows, *before)
    (first,) = await starts(hand, A)
    assert await held(hand, rows) == [first]
    await edited(hand, rows, *after)
    (second,) = await starts(hand, A)
    await swept(rows)
    assert await held(hand, rows) == [first]
    await hand.answer(first, RunCompleted(output="1"))
    await swept(rows)
    assert await held(hand, rows) == [second]


async def test_a_limit_that_comes_holds_for_runs_that_wait_sleep_or_were_let_through(
    hand: Hand, rows: LiveRows
) -> None:
    await edited(hand, rows)
    asleep, queued, other = await starts(hand, A, A, B)
    await hand.answer(asleep, Sleep(id="z", name="z", for_ms=60_000))
    await edited(hand, rows, K)
    await hand.fire(asleep)
    assert await held(hand, rows) == []
    await swept(rows)
    assert await held(hand, rows) == [queued, other], "in the order in which they have waited"
    await hand.answer(queued, RunCompleted(output="1"))
    await swept(rows)
    assert await held(hand, rows) == [asleep, other]


async def test_what_was_let_through_by_limits_that_went_and_came_again_is_not_let_through_by_them(
    hand: Hand, rows: LiveRows
) -> None:
    await edited(hand, rows, K)
    (first,) = await starts(hand, A)
    await edited(hand, rows, P)
    (second,) = await starts(hand, A)
    await swept(rows)
    await hand.hold(second)
    await edited(hand, rows, K)
    assert await held(hand, rows) == [second], f"not {first}, whose slot was of the first time"


async def test_a_run_that_was_held_up_by_limits_that_went_again_goes_on(hand: Hand, rows: LiveRows) -> None:
    await edited(hand, rows)
    (run,) = await starts(hand, A)
    await hand.declare({"name": "work", "concurrency": [1]})
    assert await held(hand, rows) == []
    await hand.declare({"name": "work"})
    await swept(rows)
    assert await held(hand, rows) == [run]


async def test_limits_that_change_their_places_are_the_same_limits(hand: Hand, rows: LiveRows) -> None:
    await edited(hand, rows, {"limit": 2}, K)
    runs = await starts(hand, A, A, B, {"k": 3})
    assert await held(hand, rows) == [runs[0], runs[2]]
    version = await rows.value("select version from rt.gate_rule")
    await edited(hand, rows, K, {"limit": 3})
    assert await rows.value("select version from rt.gate_rule") == version
    assert await held(hand, rows) == [runs[0], runs[2], runs[3]]


async def test_of_two_limits_with_one_key_the_smaller_holds(hand: Hand, rows: LiveRows) -> None:
    await edited(hand, rows, 3, 2)
    runs = await starts(hand, A, A, B)
    assert await held(hand, rows) == runs[:2]


async def test_two_granters_of_before_and_after_an_edit_pass_no_limit(hand: Hand, rows: LiveRows) -> None:
    await edited(hand, rows, 1)
    first, waits = await starts(hand, A, B)
    assert await held(hand, rows) == [first]
    await hand.answer(first, RunCompleted(output="1"))
    grant = "select run from rt.grant_v1(array(select ga from rt.live), array(select gb from rt.live))"
    async with rows.database.transaction() as connection:
        assert [row["run"] for row in await connection.fetch(grant)] == [waits]
        await hand.declare({"name": "work", "concurrency": [1, K]})
        other = asyncio.create_task(hand.start("work", json.dumps(A)))
        await held_up(connection)
    third = await other
    assert len(await held(hand, rows)) == 1
    await swept(rows)
    (one,) = await held(hand, rows)
    await hand.answer(one, RunCompleted(output="1"))
    await swept(rows)
    assert {one, *await held(hand, rows)} == {waits, third}


async def test_a_run_that_cannot_be_put_before_its_gates_stops_no_other(
    hand: Hand, rows: LiveRows, caplog: pytest.LogCaptureFixture
) -> None:
    await edited(hand, rows, 1)
    runs = await starts(hand, A, A, A, A)
    await rows.rows(f"update t_{hand.tenant}.runs set event_data = '{{' where id = $1 returning id", runs[2])
    with caplog.at_level(logging.CRITICAL, "services.core.engine.regate"):
        await edited(hand, rows, {"limit": 9, "key": "event.data.k"})
        assert await held(hand, rows) == [runs[1], runs[3]], (
            "the first had a slot: it is moved when it is to be claimed"
        )
        await swept(rows)
    assert await held(hand, rows) == [runs[0], runs[1], runs[3]]


ONE_IN_ALL: list[Any] = [
    [1],
    [{"limit": 1}, {"limit": 9, "key": "event.data.k"}],
    [{"limit": 9, "key": "event.data.k"}, {"limit": 1}],
    [{"limit": 3, "key": "event.data.p"}, 1],
    [1, 7],
]
ONE_A_KEY: list[Any] = [
    [{"limit": 1, "key": "event.data.k"}],
    [{"limit": 5}, {"limit": 1, "key": "event.data.k"}],
    [{"limit": 1, "key": "event.data.k"}, {"limit": 2, "key": "event.data.p"}],
    [{"limit": 1, "key": "event.data.k"}, {"limit": 4, "key": "event.data.k"}],
]


class Inside:
    """Who is in the function, by what the limits that are always the same count."""

    def __init__(self, key: str | None) -> None:
        self._key = key
        self.now: Counter[Any] = Counter()
        self.most = 0
        self.ended = 0

    async def __call__(self, request: Request) -> Answer:
        value = None if self._key is None else request["event"]["data"][self._key]
        self.now[value] += 1
        self.most = max(self.most, self.now[value])
        await asyncio.sleep(0.002)
        self.now[value] -= 1
        if len(request["steps"]) < 2:
            return completed(f"s{len(request['steps'])}")
        self.ended += 1
        return {"op": "run_completed"}


class Ears(NullPublisher):
    """Carries hints to executors, as the bus does."""

    def __init__(self) -> None:
        self.executors: list[Incarnation] = []

    def publish_ready(self, run_ids: Sequence[UUID], traceparent: str) -> None:
        for run in run_ids:
            self.executors[run.int % len(self.executors)].hint([run])


@contextlib.asynccontextmanager
async def sweeping(database: Database, hints: Hints) -> AsyncIterator[None]:
    """A scheduler's passes, one after another."""

    async def sweep() -> None:
        duty = SweepGates(Gates(database, hints), Regater(database, DefinitionsCache(None), hints))
        while not over.is_set():
            await duty.run_once()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await over.wait()

    over = asyncio.Event()
    passes = asyncio.create_task(sweep())
    try:
        yield
    finally:
        over.set()
        await passes


@pytest.mark.parametrize(("definitions", "key"), [(ONE_IN_ALL, None), (ONE_A_KEY, "k")], ids=["in all", "a key"])
async def test_c16_while_other_limits_come_and_go_one_that_stays_is_kept_by_executors(
    hand: Hand, rows: LiveRows, definitions: list[Any], key: str | None
) -> None:
    inside, chance, ears, edits = Inside(key), random.Random(7), Ears(), 30
    scripts = {"work": inside}
    await hand.declare({"name": "work", "concurrency": definitions[0]})
    async with (
        executing(rows.database, scripts, publisher=ears) as (one, _),
        executing(rows.database, scripts, publisher=ears) as (two, _),
    ):
        ears.executors += [one, two]
        async with sweeping(rows.database, Hints(ears)):
            for _ in range(edits):
                for _ in range(2):
                    await hand.start("work", f'{{"k": {chance.randrange(4)}, "p": {chance.randrange(3)}}}')
                await asyncio.sleep(0.05)
                await hand.declare({"name": "work", "concurrency": chance.choice(definitions)})

            async def all_ended() -> bool:
                return inside.ended == 2 * edits

            await until(all_ended, 60.0)
    assert inside.most == 1
    await invariants.check(rows.database.dsn)
