"""Writes that callers name are carried out once, and answered the same way for a day (engine section 3)."""

from __future__ import annotations

import asyncio
import json
import math
import random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runr.workflows.v1 import event_service_pb2, run_service_pb2

from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, Malformed, NotFound, Unavailable
from services.core.domain.named_write import hold_ms, name_of
from services.core.domain.op import RunCompleted
from services.core.engine.once import StoredOnce
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.named_writes import NamedWrites, WriteKey
from services.scheduler.duties.named_writes import ForgetWrites
from tests.support.hand import Hand
from tests.support.ingest_service import Ingest, ask, ingest, refused

__all__ = ["ingest"]

RETRY = "/runr.workflows.v1.RunService/RetryRun"
UPDATE = "/runr.workflows.v1.WorkflowService/UpdateWorkflow"
TOKEN = "/runr.workflows.v1.AccessService/CreateToken"
CALLER = Caller(tenant=1, token_id="01TOKEN", abilities=frozenset())


def start(**fields: Any) -> run_service_pb2.StartRunRequest:
    return run_service_pb2.StartRunRequest(project="default", workflow="work", **fields)


async def runs_of(hand: Hand) -> int:
    return int(await fetchval(hand.database, "select count(*) from rt.runs"))


async def fetchval(database: Database, statement: str, *values: Any) -> Any:
    async with database.connection() as connection:
        return await connection.fetchval(statement, *values)


async def test_a_named_start_is_one_run_and_has_one_answer(ingest: Ingest, hand: Hand) -> None:
    first = await ask(ingest.runs.StartRun, start(data=b'{"a": 1}'), name="k-1")
    await hand.answer(ulid_uuid(first.run.id), RunCompleted())
    again = await ask(ingest.runs.StartRun, start(data=b'{"a": 1}'), name='"k-1"')
    assert again == first
    other = await ask(ingest.runs.StartRun, start(data=b'{"a": 1}'), name="k-2")
    assert other.run.id != first.run.id
    assert await runs_of(hand) == 2


async def test_named_events_are_accepted_once(ingest: Ingest, hand: Hand) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "go"}]})
    request = event_service_pb2.SendEventsRequest(events=[event_service_pb2.NewEvent(name="go") for _ in range(3)])
    first = await ask(ingest.events.SendEvents, request, name="k")
    assert await ask(ingest.events.SendEvents, request, name="k") == first
    assert await runs_of(hand) == 3


async def test_a_name_of_another_request_is_refused(ingest: Ingest, hand: Hand) -> None:
    await ask(ingest.runs.StartRun, start(data=b'{"a": 1}'), name="k")
    error = await refused(InvalidInput, ask(ingest.runs.StartRun, start(data=b'{"a": 2}'), name="k"))
    assert error.reason == "IDEMPOTENCY_KEY_REUSED"
    assert await runs_of(hand) == 1


async def test_what_was_refused_is_not_kept(ingest: Ingest, hand: Hand) -> None:
    request = run_service_pb2.StartRunRequest(project="default", workflow="new")
    await refused(NotFound, ask(ingest.runs.StartRun, request, name="k"))
    await hand.declare({"name": "new"})
    assert (await ask(ingest.runs.StartRun, request, name="k")).run.workflow == "new"


async def test_many_at_once_are_one(ingest: Ingest, hand: Hand) -> None:
    ends = await asyncio.gather(
        *(ask(ingest.runs.StartRun, start(), name="k") for _ in range(20)), return_exceptions=True
    )
    answers = [end for end in ends if not isinstance(end, BaseException)]
    held = [end for end in ends if isinstance(end, Conflict)]
    assert len(answers) + len(held) == len(ends)
    assert {error.reason for error in held} <= {"IDEMPOTENCY_IN_PROGRESS"}
    assert len({answer.run.id for answer in answers}) == 1
    assert await runs_of(hand) == 1


class Forgetful(NamedWrites):
    """As if the process were killed after the write and before its answer is stored."""

    async def done(self, key: WriteKey, holder: UUID, answer: bytes | None) -> None:
        raise Unavailable("killed")


@pytest.fixture
def ids() -> UlidFactory:
    return UlidFactory(SystemClock(), random.Random())


@pytest.fixture
def once(database: Database, sealer: Sealer, ids: UlidFactory) -> StoredOnce:
    return StoredOnce(NamedWrites(database), sealer, ids)


@pytest.fixture
def killed(database: Database, sealer: Sealer, ids: UlidFactory) -> StoredOnce:
    return StoredOnce(Forgetful(database), sealer, ids)


class Effect:
    """A write that counts how often it happened, and under which id."""

    def __init__(self, answer: bytes = b"done", error: BaseException | None = None) -> None:
        self.seen: list[tuple[UUID, bool]] = []
        self._answer = answer
        self._error = error

    async def __call__(self, id: UUID, is_again: bool) -> bytes:
        self.seen.append((id, is_again))
        if self._error is not None:
            raise self._error
        return self._answer


async def perform(once: StoredOnce, method: str, effect: Effect, *, asked: bytes = b"x", secret: bool = False) -> bytes:
    return await once.perform(CALLER, method, "k", asked, effect, keeps_answer=not secret)


async def pass_time(database: Database, ms: int) -> None:
    """The holder's time is over, and the row is older."""
    async with database.connection() as connection:
        await connection.execute(
            "update rt.named_write set held_until = held_until - $1::int * interval '1 ms',"
            " created_at = created_at - $1::int * interval '1 ms'",
            ms,
        )


async def test_of_a_killed_process_what_may_be_repeated_is_repeated_under_its_id(
    killed: StoredOnce, once: StoredOnce, database: Database
) -> None:
    effect = Effect()
    await perform(killed, UPDATE, effect)
    with pytest.raises(Conflict, match="is being carried out"):
        await perform(once, UPDATE, effect)
    await pass_time(database, 200_000)
    assert await perform(once, UPDATE, effect) == b"done"
    assert await perform(once, UPDATE, effect) == b"done"
    (first, was_again), (second, is_again) = effect.seen
    assert (first, was_again, is_again) == (second, False, True)


async def test_what_could_happen_twice_is_never_carried_out_again(
    killed: StoredOnce, once: StoredOnce, database: Database
) -> None:
    effect = Effect()
    await perform(killed, RETRY, effect)
    await pass_time(database, 200_000)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            await perform(once, RETRY, effect)
        assert caught.value.reason == "IDEMPOTENCY_OUTCOME_UNKNOWN"
    assert len(effect.seen) == 1


@pytest.mark.parametrize("error", [Unavailable("away"), asyncio.CancelledError(), ZeroDivisionError()])
async def test_an_end_that_says_nothing_is_no_refusal(once: StoredOnce, error: BaseException) -> None:
    with pytest.raises(type(error)):
        await perform(once, RETRY, Effect(error=error))
    with pytest.raises(Conflict, match="not known"):
        await perform(once, RETRY, Effect())
    with pytest.raises(Conflict, match="not known"):
        await perform(once, RETRY, Effect())


async def test_a_start_of_a_killed_process_is_found_however_late(
    killed: StoredOnce, ingest: Ingest, hand: Hand, database: Database
) -> None:
    first = await ask(ingest.runs.StartRun, start(), name="k")
    for age_ms in (10_000, 3_600_000):
        async with database.connection() as connection:
            await connection.execute("update rt.named_write set done = false, answer = null")
        await pass_time(database, age_ms)
        again = await ask(ingest.runs.StartRun, start(), name="k")
        assert again.run.id == first.run.id
    assert await runs_of(hand) == 1


async def test_a_late_start_that_left_no_run_is_not_made_up(ingest: Ingest, hand: Hand, ids: UlidFactory) -> None:
    await ask(ingest.runs.StartRun, start(), name="k")
    old = UUID(int=ids.new().int - (120_000 << 80))
    async with hand.database.connection() as connection:
        await connection.execute("update rt.named_write set done = false, answer = null, id = $1", old)
    await pass_time(hand.database, 120_000)
    for _ in range(3):
        error = await refused(Conflict, ask(ingest.runs.StartRun, start(), name="k"))
        assert error.reason == "IDEMPOTENCY_OUTCOME_UNKNOWN"
    assert await runs_of(hand) == 1


async def test_a_repeat_that_is_refused_leaves_the_write_its_id(
    killed: StoredOnce, once: StoredOnce, database: Database
) -> None:
    effect = Effect()
    await perform(killed, UPDATE, effect)
    await pass_time(database, 200_000)
    refusing = Effect(error=NotFound("it is gone"))
    with pytest.raises(NotFound):
        await perform(once, UPDATE, refusing)
    assert await perform(once, UPDATE, effect) == b"done"
    ids = {id for id, _ in (*effect.seen, *refusing.seen)}
    assert len(ids) == 1


async def test_after_a_day_a_name_is_new_and_old_names_are_taken_away(once: StoredOnce, database: Database) -> None:
    effect = Effect()
    await perform(once, RETRY, effect)
    await pass_time(database, 24 * 3_600_000 + 1_000)
    await perform(once, RETRY, effect, asked=b"another")
    assert [again for _, again in effect.seen] == [False, False]
    duty = ForgetWrites(NamedWrites(database))
    assert await duty.run_once() == {"forgotten": 0}
    await pass_time(database, 24 * 3_600_000 + 1_000)
    assert await duty.run_once() == {"forgotten": 1}
    assert await fetchval(database, "select count(*) from rt.named_write") == 0


async def test_answers_are_sealed_and_secrets_not_kept_at_all(once: StoredOnce, database: Database) -> None:
    await perform(once, UPDATE, Effect(b"of the tenant \xff"))
    assert b"tenant" not in await fetchval(database, "select answer from rt.named_write")
    assert await perform(once, UPDATE, Effect()) == b"of the tenant \xff"
    await perform(once, TOKEN, Effect(b"rt_secret"), secret=True)
    assert await fetchval(database, "select answer from rt.named_write where method = $1", TOKEN) is None
    with pytest.raises(Conflict) as caught:
        await perform(once, TOKEN, Effect(), secret=True)
    assert caught.value.reason == "IDEMPOTENCY_ANSWER_NOT_KEPT"


async def test_names_are_each_callers_own(once: StoredOnce) -> None:
    effect = Effect()
    for tenant, token in ((1, "a"), (1, "b"), (2, "a")):
        caller = Caller(tenant=tenant, token_id=token, abilities=frozenset())
        await once.perform(caller, RETRY, "k", json.dumps([tenant, token]).encode(), effect, keeps_answer=True)
    assert len({id for id, _ in effect.seen}) == 3
    assert ulid_text(effect.seen[0][0])


def test_a_write_belongs_to_who_began_it_for_as_long_as_its_caller_waits() -> None:
    assert hold_ms(UPDATE, None) == 150_000
    assert hold_ms(UPDATE, 30_000) == 32_000
    assert hold_ms(UPDATE, -5) == 2_000
    assert hold_ms(UPDATE, 9e9) == hold_ms(UPDATE, math.inf) == 150_000
    assert hold_ms("/runr.workflows.v1.RunService/StartRun", 30_000) == 5_000


@pytest.mark.parametrize("header", ["", " ", '""', "x" * 256, "a b", "\xe9", '"a', "a\x00"])
def test_what_is_no_name(header: str) -> None:
    with pytest.raises(Malformed):
        name_of(header)


@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters='"\\'), min_size=1, max_size=255)
)
def test_a_name_may_be_quoted(name: str) -> None:
    assert name_of(name) == name_of(f'"{name}"') == name
