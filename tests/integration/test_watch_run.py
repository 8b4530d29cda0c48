"""Following a run over gRPC: its changes as they are committed, and going on from any of them (engine section 3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import NotFound, RateLimited
from services.core.domain.op import OpError, RunCompleted, Sleep, StepCompleted, StepFailed
from services.core.domain.run_change import Cursor
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.retry_run import RunRetrier
from services.core.rpc.channel import call_metadata
from services.core.rpc.status import from_rpc_error
from services.core.runtime.ids import ulid_text
from services.core.store.database import Database
from services.core.store.run_changes import RunChangeReader
from services.core.store.runs import RunReader
from services.ingest.watch_service import STREAMS_PER_TOKEN
from tests.support.hand import Hand
from tests.support.ingest_service import Ingest, ingest
from tests.support.tenancy import BOOTSTRAP_TOKEN
from tests.support.waiting import until

__all__ = ["ingest"]

LONG_S = 60
NO = OpError("CardDeclined", "no money", None)
Change = run_service_pb2.WatchRunResponse


def done(id: str, output: str = "null") -> StepCompleted:
    return StepCompleted(id=id, name=id, output=output, duration_ms=5)


class Watch:
    """An open stream, and what it has told of the steps."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self.steps: dict[str, int] = {}
        self.told: list[str] = []
        self.last = Change()

    async def next(self) -> Change | None:
        """The next answer; None at the end."""
        try:
            async with asyncio.timeout(LONG_S):
                message: Change = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        if message is grpc.aio.EOF:
            return None
        if message.whole:
            self.steps.clear()
        self.steps.update({step.id: step.state for step in message.steps})
        self.told += [step.id for step in message.steps]
        self.last = message
        return message

    async def until(self, step: str, state: int) -> None:
        while self.steps.get(step) != state:
            assert await self.next() is not None

    async def end(self) -> Change:
        while await self.next() is not None:
            pass
        return self.last


@asynccontextmanager
async def watching(ingest: Ingest, run: UUID, cursor: str = "") -> AsyncIterator[Watch]:
    call = ingest.runs.WatchRun(
        run_service_pb2.WatchRunRequest(run_id=ulid_text(run), cursor=cursor), metadata=call_metadata(BOOTSTRAP_TOKEN)
    )
    try:
        yield Watch(call)
    finally:
        call.cancel()


COMPLETED, CANCELLED = resources_pb2.STEP_STATE_COMPLETED, resources_pb2.STEP_STATE_CANCELLED
SLEEPING, RETRYING = resources_pb2.STEP_STATE_SLEEPING, resources_pb2.STEP_STATE_RETRYING


async def test_a_run_is_followed_from_its_start_to_its_end(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work", '{"a": 1}')
    async with watching(ingest, run) as watch:
        first = await watch.next()
        assert first is not None
        assert (first.whole, first.ended, first.run.state) == (True, False, resources_pb2.RUN_STATE_QUEUED)
        assert not first.run.HasField("event")
        await hand.answer(run, done("charge", "7"))
        await watch.until("charge", COMPLETED)
        await hand.answer(run, Sleep(id="pause", name="pause", for_ms=60_000))
        await watch.until("pause", SLEEPING)
        assert watch.told.count("charge") == 1
        await hand.fire(run)
        await hand.answer(run, RunCompleted(output='{"ok": true}'))
        last = await watch.end()
    assert (last.ended, last.run.state, last.run.output) == (True, resources_pb2.RUN_STATE_COMPLETED, b'{"ok": true}')
    assert last.run.event.data == b'{"a": 1}'
    assert watch.steps == {"charge": COMPLETED, "pause": COMPLETED}


async def test_from_a_cursor_on_only_what_is_new_is_told(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, done("a"))
    async with watching(ingest, run) as watch:
        await watch.until("a", COMPLETED)
        cursor = watch.last.cursor
    await hand.answer(run, done("b"))
    async with watching(ingest, run, cursor) as watch:
        first = await watch.next()
        assert first is not None
        assert (first.whole, [step.id for step in first.steps]) == (False, ["b"])
        await hand.answer(run, RunCompleted())
        ended = (await watch.end()).cursor
    async with watching(ingest, run, ended) as watch:
        assert await watch.next() is None


@pytest.mark.parametrize("cursor", ["x", "00000000-5-0-a", "00000000-5-0-e", "\u2028"])
async def test_from_what_is_no_cursor_here_the_whole_run_is_told(
    ingest: Ingest,
    hand: Hand,
    cursor: str,
) -> None:
    run = await hand.start("work")
    await hand.answer(run, done("a"))
    async with watching(ingest, run, cursor) as watch:
        first = await watch.next()
    assert first is not None
    assert (first.whole, [step.id for step in first.steps]) == (True, ["a"])


async def test_after_a_retry_steps_that_have_gone_are_not_left_behind(
    ingest: Ingest,
    hand: Hand,
    database: Database,
) -> None:
    run = await hand.start("work")
    await hand.answer(run, done("a"))
    await hand.answer(run, Sleep(id="b", name="b", for_ms=60_000))
    await hand.cancel(run)
    async with watching(ingest, run) as watch:
        ended = await watch.end()
        assert watch.steps == {"a": COMPLETED, "b": CANCELLED}
    await RunRetrier(database, DefinitionsCache(None), Hints(NullPublisher())).retry(hand.tenant, run)
    async with watching(ingest, run, ended.cursor) as watch:
        again = await watch.next()
        assert again is not None
        assert (again.whole, again.ended, watch.steps) == (True, False, {"a": COMPLETED})


async def test_a_step_whose_pause_is_over_is_told(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    async with watching(ingest, run) as watch:
        await hand.answer(run, StepFailed(id="a", name="a", error=NO))
        await watch.until("a", RETRYING)
        while not watch.last.steps[-1].HasField("wake_at"):
            await watch.next()
        await hand.fire(run)
        while watch.last.run.state != resources_pb2.RUN_STATE_QUEUED or watch.last.steps[-1].HasField("wake_at"):
            assert await watch.next() is not None
        assert len(watch.last.steps[-1].attempts) == 1


async def test_a_failed_attempt_of_the_function_is_told_when_it_fails_and_once(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    failed: list[tuple[int, str]] = []
    async with watching(ingest, run) as watch:
        await watch.next()
        for number in (1, 2):
            await hand.fail(run, "FunctionUnreachable", "refused")
            while len(failed) < number:
                message = await watch.next()
                assert message is not None
                failed += [(attempt.attempt, attempt.error.name) for attempt in message.run.attempts]
            await hand.fire(run)
        cursor = watch.last.cursor
        assert failed == [(1, "FunctionUnreachable"), (2, "FunctionUnreachable")]
    async with watching(ingest, run, cursor) as watch:
        await hand.answer(run, RunCompleted())
        assert [attempt.attempt for attempt in (await watch.end()).run.attempts] == [1, 2]


async def test_a_run_of_nobody_and_of_others_is_not_found(ingest: Ingest, hand: Hand) -> None:
    async with watching(ingest, UUID(int=5)) as watch:
        with pytest.raises(NotFound):
            await watch.next()


async def test_a_drain_ends_streams_at_once(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    async with watching(ingest, run) as watch:
        assert await watch.next() is not None
        ingest.request_stop()
        last = await watch.end()
        assert not last.ended


async def test_streams_of_a_token_are_counted(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    request = run_service_pb2.WatchRunRequest(run_id=ulid_text(run))
    calls = [ingest.runs.WatchRun(request, metadata=call_metadata(BOOTSTRAP_TOKEN)) for _ in range(STREAMS_PER_TOKEN)]
    async with asyncio.timeout(LONG_S):
        await asyncio.gather(*(call.read() for call in calls))
    async with watching(ingest, run) as watch:
        with pytest.raises(RateLimited):
            await watch.next()
    for call in calls:
        call.cancel()

    async def let_in() -> bool:
        async with watching(ingest, run) as watch:
            with contextlib.suppress(RateLimited):
                return await watch.next() is not None
        return False

    await until(let_in)  # the server hears of it a little later


async def test_who_goes_away_without_reading_leaves_nothing_behind(ingest: Ingest, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, *(done(f"s{place}", '"' + "x" * 1_000_000 + '"') for place in range(15)))
    request = run_service_pb2.WatchRunRequest(run_id=ulid_text(run))
    for _ in range(STREAMS_PER_TOKEN + 1):
        call = ingest.runs.WatchRun(request, metadata=call_metadata(BOOTSTRAP_TOKEN))
        async with asyncio.timeout(LONG_S):
            assert await call.read() is not grpc.aio.EOF
        call.cancel()


async def test_steps_of_many_bytes_come_in_pages_of_one_moment(hand: Hand, database: Database) -> None:
    run = await hand.start("work")
    for place in range(5):
        await hand.answer(run, done(f"s{place}", '"' + "x" * 1_000 + '"'))
    reader = RunChangeReader(database)
    first = await reader.since(hand.tenant, run, None, max_bytes=2_500)
    assert ([step.id for step in first.steps], first.next) == (["s0", "s1"], (1, "s1"))
    rest = await reader.since(hand.tenant, run, None, after=first.next, max_bytes=100_000)
    assert ([step.id for step in rest.steps], rest.next) == (["s2", "s3", "s4"], None)


async def test_ten_thousand_steps_that_each_have_failed_once_are_read_in_time(hand: Hand, database: Database) -> None:
    """Nothing is compared with everything else: no statement of a read may last 5 s."""
    run = await hand.start("work")
    async with database.connection() as connection:
        await connection.execute(
            "insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, t0, t1)"
            " select $1, $2, 's' || n, n, 's', 'r', 'c', '1', now(), now() from generate_series(1, 10000) n",
            *(hand.tenant, run),
        )
        await connection.execute(
            "insert into rt.attempts (tenant, run, n, sid, k, error, t0, t1)"
            """ select $1, $2, n, 's' || n, 1, '{"name": "E", "message": "m"}', now(), now()"""
            " from generate_series(1, 10000) n",
            *(hand.tenant, run),
        )
    whole = await RunChangeReader(database).since(hand.tenant, run, None)
    news = await RunChangeReader(database).since(hand.tenant, run, whole.cursor)
    shown = await RunReader(database).detail(hand.tenant, run)
    assert (len(whole.steps), whole.next, len(news.steps), news.next) == (1_000, (1_000, "s1000"), 0, None)
    assert [step.id for step in shown.steps] == [step.id for step in whole.steps]
    assert len(shown.steps[0].attempts) == 2


@given(st.text() | st.from_regex(r"[0-9a-f]{8}-[0-9]+-[0-9]+-[ae]", fullmatch=True))
def test_any_text_is_a_cursor_or_none(text: str) -> None:
    found = Cursor.parse(text)
    assert found is None or Cursor.parse(found.text) == found
