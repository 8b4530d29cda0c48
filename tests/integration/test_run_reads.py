"""One run in full: steps of every kind and state, attempts, children, pages, all of one moment (engine section 3)."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from services.core.domain.errors import NotFound
from services.core.domain.expression import match_expression
from services.core.domain.op import (
    Invoke,
    OpError,
    RunCompleted,
    RunFailed,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.run_record import RunDetail, StepRecord
from services.core.engine.bootstrap import DEFAULT_PROJECT
from services.core.engine.projects import ProjectChange, create_project
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.runs import PAGE_BYTES, RunReader
from services.core.store.snapshot import snapshot
from tests.support.hand import Hand, playing

NO = OpError("CardDeclined", "no money", "at line 1")


@pytest.fixture
def reader(database: Database) -> RunReader:
    return RunReader(database)


def done(id: str, output: str = "null", **fields: object) -> StepCompleted:
    return StepCompleted(id=id, name=id.partition(":")[0], output=output, duration_ms=5, **fields)  # type: ignore[arg-type]


def failed(id: str, **fields: object) -> StepFailed:
    return StepFailed(id=id, name=id, error=NO, duration_ms=5, **fields)  # type: ignore[arg-type]


async def only_step(reader: RunReader, hand: Hand, run: UUID) -> StepRecord:
    (step,) = (await reader.detail(hand.tenant, run)).steps
    return step


async def test_a_queued_run_has_what_started_it(reader: RunReader, hand: Hand) -> None:
    text = '{"big":12345678901234567890, "x": 1.0, "s":"\\u0000\\ud800"}'
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    run = await hand.start("work", text, idempotency_key="k-1", tags=("a", "b"), test=True, trace=trace)
    found = (await reader.detail(hand.tenant, run)).run
    assert (found.id, found.workflow, found.project) == (run, "work", DEFAULT_PROJECT)
    assert (found.state, found.source, found.test, found.attempt) == ("queued", "api", True, 0)
    assert (found.idempotency_key, found.tags, found.trace) == ("k-1", ("a", "b"), trace)
    assert found.event is not None
    assert (found.event.name, found.event.data) == ("runr/api.start", text)
    assert found.started_ms is None
    assert found.ended_ms is None
    assert found.timeout_ms is not None
    assert found.timeout_ms - found.created_ms == 30 * 86_400_000


async def test_the_data_of_an_event_is_read_from_the_event(reader: RunReader, hand: Hand) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "order.created"}]})
    accepted = await hand.send("order.created", '{"order_id": "o-1"}', event_id="order-1", ts=1_760_000_000_000)
    found = (await reader.detail(hand.tenant, accepted.runs[0])).run
    assert found.source == "event"
    assert found.event is not None
    assert (found.event.id, found.event.name, found.event.ts) == (accepted.id, "order.created", 1_760_000_000_000)
    assert found.event.data == '{"order_id": "o-1"}'


async def test_a_step_that_failed_twice_and_then_completed_has_three_attempts(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    for _ in range(2):
        await hand.answer(run, failed("pay"))
        await hand.fire(run)
    await hand.answer(run, done("pay", '{"n": 1.0}', input="[7]"))
    step = await only_step(reader, hand, run)
    assert (step.id, step.kind, step.state, step.output, step.input) == ("pay", "run", "completed", '{"n": 1.0}', "[7]")
    assert [(attempt.number, attempt.error) for attempt in step.attempts] == [(1, NO), (2, NO), (3, None)]
    assert step.started_ms == step.attempts[0].started_ms
    assert step.ended_ms == step.attempts[2].ended_ms
    assert step.wake_ms is None
    assert step.error is None


async def test_a_step_that_failed_for_good_has_its_error(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, failed("pay", non_retriable=True))
    step = await only_step(reader, hand, run)
    assert (step.state, step.error, step.output) == ("failed", NO, None)
    assert [(attempt.number, attempt.error) for attempt in step.attempts] == [(1, NO)]


async def test_a_step_in_its_backoff_is_retrying_and_wakes(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, failed("pay", retry_after_ms=60_000, warning="odd"))
    detail = await reader.detail(hand.tenant, run)
    (step,) = detail.steps
    assert (step.state, step.kind, step.ended_ms, step.error) == ("retrying", "run", None, None)
    assert step.wake_ms is not None
    assert 59_000 <= step.wake_ms - step.attempts[0].ended_ms <= 61_000
    assert step.attempts[0].warning == "odd"
    assert (detail.run.state, detail.run.attempt, detail.run.due_ms) == ("queued", 1, step.wake_ms)


async def test_a_step_that_runs_again_now_is_last_and_the_end_of_the_run_cancels_it(
    reader: RunReader, hand: Hand
) -> None:
    run = await hand.start("work")
    await hand.answer(run, done("first"))
    await hand.answer(run, failed("pay"))
    await hand.fire(run)
    steps = (await reader.detail(hand.tenant, run)).steps
    assert [(step.id, step.state, step.wake_ms) for step in steps] == [
        ("first", "completed", None),
        ("pay", "retrying", None),
    ]
    await hand.cancel(run)
    detail = await reader.detail(hand.tenant, run)
    assert [(step.id, step.state) for step in detail.steps] == [("first", "completed"), ("pay", "cancelled")]
    assert detail.steps[1].ended_ms == detail.run.ended_ms


async def test_a_sleep_says_when_it_wakes_and_then_that_it_is_over(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, Sleep(id="nap", name="nap", for_ms=600_000))
    detail = await reader.detail(hand.tenant, run)
    (step,) = detail.steps
    assert (detail.run.state, step.kind, step.state) == ("sleeping", "sleep", "sleeping")
    assert step.wake_ms is not None
    assert step.started_ms is not None
    assert step.wake_ms - step.started_ms == 600_000
    assert detail.run.due_ms == step.wake_ms
    await hand.fire(run)
    step = await only_step(reader, hand, run)
    assert (step.state, step.output, step.wake_ms) == ("completed", None, None)


async def test_a_wait_shows_event_condition_and_timeout_and_then_the_event(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work", '{"order_id": "o-1"}')
    condition = "event.data.order_id == async.data.order_id"
    await hand.answer(
        run,
        WaitForEvent(id="shipped", name="shipped", event="order.shipped", condition=condition, timeout_ms=60_000),
    )
    detail = await reader.detail(hand.tenant, run)
    (step,) = detail.steps
    assert (detail.run.state, detail.run.due_ms, step.state, step.wake_ms) == ("waiting", None, "waiting", None)
    assert step.wait is not None
    assert (step.wait.event, step.wait.condition) == ("order.shipped", condition)
    assert step.wait.timeout_ms is not None
    assert step.started_ms is not None
    assert step.wait.timeout_ms - step.started_ms == 60_000
    accepted = await hand.send("order.shipped", '{"order_id": "o-1"}', ts=5)
    assert accepted.resumed == 1
    step = await only_step(reader, hand, run)
    assert (step.kind, step.state, step.wait) == ("wait_for_event", "completed", None)
    assert step.output is not None
    assert json.loads(step.output)["data"] == {"order_id": "o-1"}
    assert not step.timed_out


async def test_a_wait_whose_time_was_up_says_so(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, WaitForEvent(id="w", name="w", event="paid", timeout_ms=60_000))
    assert not (await only_step(reader, hand, run)).timed_out
    await hand.fire(run)
    step = await only_step(reader, hand, run)
    assert (step.state, step.output, step.timed_out) == ("completed", None, True)
    await hand.cancel(run)
    stopped = await hand.start("work")
    await hand.answer(stopped, WaitForEvent(id="w", name="w", event="paid", timeout_ms=60_000))
    await hand.cancel(stopped)
    step = await only_step(reader, hand, stopped)
    assert (step.state, step.timed_out) == ("cancelled", False)


async def test_case_18_wait_match_absent_both(reader: RunReader, hand: Hand) -> None:
    match = match_expression("data.order_id")
    run = await hand.start("work")
    await hand.answer(run, WaitForEvent(id="w", name="w", event="paid", condition=match, timeout_ms=60_000))
    step = await only_step(reader, hand, run)
    assert step.wait is not None
    assert step.wait.warnings == ("match value is null",)
    assert (await hand.send("paid", '{"order_id": "o-1"}')).resumed == 0
    assert (await hand.send("paid")).resumed == 1
    told = await hand.start("work", '{"order_id": "o-1"}')
    await hand.answer(told, WaitForEvent(id="w", name="w", event="paid", condition=match, timeout_ms=60_000))
    step = await only_step(reader, hand, told)
    assert step.wait is not None
    assert step.wait.warnings == ()


async def test_an_invoke_shows_its_child(reader: RunReader, hand: Hand) -> None:
    await hand.declare({"name": "work"}, {"name": "child"})
    run = await hand.start("work")
    await hand.answer(run, Invoke(id="call", name="call", workflow="child", data='{"n":1}'))
    detail = await reader.detail(hand.tenant, run)
    (step,) = detail.steps
    assert (step.kind, step.state, step.child is not None) == ("invoke", "waiting", True)
    assert step.wait is not None
    assert (step.wait.event, step.wait.condition) == ("", None)
    (child,) = detail.children
    assert (child.id, child.workflow, child.step_id, child.state) == (step.child, "child", "call", "queued")
    inside = (await reader.detail(hand.tenant, child.id)).run
    assert (inside.parent, inside.source) == (run, "invoke")
    await hand.answer(child.id, RunCompleted(output="7"))
    assert (await reader.detail(hand.tenant, run)).children[0].state == "completed"


async def test_attempts_of_the_function_are_the_runs_own(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.fail(run, "FunctionHttpError", "500: oops")
    detail = await reader.detail(hand.tenant, run)
    assert detail.steps == ()
    assert [(each.number, each.error) for each in detail.run.attempts] == [
        (1, OpError("FunctionHttpError", "500: oops"))
    ]
    assert (detail.run.state, detail.run.attempt, detail.run.due_ms is not None) == ("queued", 1, True)


async def test_a_completed_run_has_its_output_byte_for_byte(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, done("a"), done("a:1"))
    await hand.answer(run, RunCompleted(output='{"b":1.0,"a":12345678901234567890}'))
    detail = await reader.detail(hand.tenant, run)
    assert [(step.id, step.name) for step in detail.steps] == [("a", "a"), ("a:1", "a")]
    assert (detail.run.state, detail.run.output) == ("completed", '{"b":1.0,"a":12345678901234567890}')
    assert (detail.run.timeout_ms, detail.run.due_ms, detail.run.error) == (None, None, None)
    assert detail.run.started_ms is not None
    assert detail.run.ended_ms is not None
    assert detail.run.created_ms <= detail.run.started_ms <= detail.run.ended_ms
    result = await reader.result(hand.tenant, run)
    assert (result.state, result.ended, result.output) == ("completed", True, detail.run.output)


async def test_a_failed_run_has_its_error(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, RunFailed(error=NO, non_retriable=True))
    assert (await reader.one(hand.tenant, run)).error == NO
    result = await reader.result(hand.tenant, run)
    assert (result.state, result.ended, result.error) == ("failed", True, NO)


async def test_the_cancel_of_a_run_cancels_its_open_steps(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, Sleep(id="nap", name="nap", for_ms=600_000))
    await hand.cancel(run)
    detail = await reader.detail(hand.tenant, run)
    assert (detail.run.state, detail.steps[0].state, detail.steps[0].kind) == ("cancelled", "cancelled", "sleep")


async def all_pages(
    reader: RunReader, hand: Hand, run: UUID, *, steps: int = 1_000, max_bytes: int = PAGE_BYTES
) -> list[RunDetail]:
    pages = [await reader.detail(hand.tenant, run, steps=steps, max_bytes=max_bytes)]
    while pages[-1].next is not None:
        pages.append(await reader.detail(hand.tenant, run, after=pages[-1].next, steps=steps, max_bytes=max_bytes))
    return pages


async def test_steps_come_in_pages_of_a_number(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    ids = [f"s{number:02}" for number in range(25)]
    await hand.answer(run, *[done(id) for id in reversed(ids)], Sleep(id="nap", name="nap", for_ms=600_000))
    pages = await all_pages(reader, hand, run, steps=10)
    assert [len(page.steps) for page in pages] == [10, 10, 6]
    assert [step.id for page in pages for step in page.steps] == [*reversed(ids), "nap"]


async def test_a_page_of_steps_ends_at_its_bytes_and_has_at_least_one_step(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    await hand.answer(run, *[done(f"s{number}", json.dumps("x" * 400)) for number in range(4)])
    assert [len(page.steps) for page in await all_pages(reader, hand, run, max_bytes=1_000)] == [2, 2]
    assert [len(page.steps) for page in await all_pages(reader, hand, run, max_bytes=10)] == [1, 1, 1, 1]


async def test_the_bytes_of_a_page_count_failed_attempts(reader: RunReader, hand: Hand) -> None:
    run = await hand.start("work")
    for id in ("a", "b"):
        await hand.answer(run, StepFailed(id=id, name=id, error=OpError("E", "m" * 600)))
        await hand.fire(run)
        await hand.answer(run, done(id))
    assert [len(page.steps) for page in await all_pages(reader, hand, run, max_bytes=1_000)] == [1, 1]


async def test_a_reader_in_a_snapshot_sees_one_moment(reader: RunReader, hand: Hand, database: Database) -> None:
    run = await hand.start("work")
    async with snapshot(database) as connection:
        before = await connection.fetchval("select st::text from rt.live where id = $1", run)
        await hand.answer(run, RunCompleted(output="1"))
        assert await connection.fetchval("select st::text from rt.live where id = $1", run) == before
        assert await connection.fetchval("select count(*) from rt.ends where run = $1", run) == 0
        assert await connection.fetchval("show transaction_read_only") == "on"
        assert await connection.fetchval("show statement_timeout") == "5s"
    assert (await reader.one(hand.tenant, run)).state == "completed"


async def test_another_tenants_run_is_not_found(
    reader: RunReader, hand: Hand, database: Database, sealer: Sealer
) -> None:
    async with database.transaction() as connection:
        other = await connection.fetchval("select rt.create_tenant('other', 'Other')")
        await create_project(connection, sealer, other, "theirs", ProjectChange(name=""))
    async with playing(database, other, "theirs") as theirs:
        await theirs.declare({"name": "work"})
        run = await theirs.start("work")
        assert (await reader.one(other, run)).project == "theirs"
        for ask in (reader.detail, reader.one, reader.result):
            with pytest.raises(NotFound):
                await ask(hand.tenant, run)
