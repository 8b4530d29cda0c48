"""Idempotency leads an invoke to a run that waits for the invoking one: the step fails, nobody waits without end."""

from __future__ import annotations

import contextlib
import itertools
import json
from uuid import UUID, uuid4

import asyncpg
import pytest

from services.core.domain.json_value import key_text
from services.core.domain.op import Invoke, RunCompleted
from services.core.domain.run import Status
from services.core.store.batch import prepared
from services.core.store.commit_item import CommitItem
from services.core.store.queries import queries
from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import completed, replaying
from tests.support.hand import Hand
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

NAMES = ("a", "b", "c", "d")


class Circle:
    """Workflows whose only run, each, is found by every invoke."""

    def __init__(self, hand: Hand, rows: LiveRows) -> None:
        self.hand = hand
        self.rows = rows
        self.runs: dict[str, UUID] = {}

    async def start(self, *names: str) -> None:
        for name in names:
            self.runs[name] = await self.hand.start(name)

    async def invoke(self, name: str, other: str) -> None:
        """The run of one workflow invokes another and rests."""
        op = Invoke(id="i", name="i", workflow=other, data="{}")
        assert await self.hand.answer(self.runs[name], op) is Status.WAITING

    async def apply_marks(self) -> None:
        await self.rows.rows("select * from rt.apply_marks_v1(0, 100)")

    async def fault(self, name: str) -> str | None:
        """The message of the error with which the step failed."""
        row = await self.rows.row(
            "select status::text, error, child from rt.steps where run = $1 and sid = 'i'", self.runs[name]
        )
        if row is None:
            return None
        error = json.loads(row["error"])
        assert (row["status"], error["name"]) == ("f", "InvokeError")
        assert row["child"] in self.runs.values()
        return str(error["message"])

    async def statuses(self) -> list[Status]:
        return [await self.rows.status(run) for run in self.runs.values()]


@pytest.fixture
async def circle(hand: Hand, rows: LiveRows) -> Circle:
    await hand.declare(*({"name": name, "idempotency": "'one'"} for name in NAMES))
    return Circle(hand, rows)


async def test_a_run_that_is_led_to_itself_does_not_wait(circle: Circle) -> None:
    await circle.start("a")
    await circle.invoke("a", "a")
    await circle.apply_marks()
    assert "this run itself" in (await circle.fault("a") or "")
    assert await circle.statuses() == [Status.QUEUED]
    await circle.hand.answer(circle.runs["a"], RunCompleted(output="1"))
    assert await circle.rows.value("select count(*) from rt.mark") == 0


@pytest.mark.parametrize("length", [2, 3, 4])
async def test_the_invoke_that_closes_a_circle_fails(circle: Circle, length: int) -> None:
    names = NAMES[:length]
    await circle.start(*names)
    for name, other in itertools.pairwise((*names, names[0])):
        await circle.invoke(name, other)
        await circle.apply_marks()
    assert "waits for this one" in (await circle.fault(names[-1]) or "")
    assert [await circle.fault(name) for name in names[:-1]] == [None] * (length - 1)
    assert await circle.statuses() == [Status.WAITING] * (length - 1) + [Status.QUEUED]
    for name in reversed(names):
        await circle.hand.answer(circle.runs[name], RunCompleted(output="1"))
        await circle.apply_marks()
    assert await circle.rows.value("select count(*) from rt.live") == 0


async def test_a_run_that_is_waited_for_by_many_is_no_circle(circle: Circle) -> None:
    await circle.start("a", "b", "c", "d")
    for name, other in (("b", "a"), ("c", "a"), ("d", "c")):
        await circle.invoke(name, other)
        await circle.apply_marks()
    assert await circle.statuses() == [Status.QUEUED, Status.WAITING, Status.WAITING, Status.WAITING]
    assert await circle.rows.value("select count(*) from rt.mark") == 0


@pytest.mark.parametrize("length", [2, 3])
async def test_invokes_that_close_a_circle_at_the_same_time_see_each_other(circle: Circle, length: int) -> None:
    """Each is committed while the others are: none has seen a wait of another, and all are held."""
    names = NAMES[:length]
    await circle.start(*names)
    async with contextlib.AsyncExitStack() as stack:
        database, owner = circle.hand.database, await circle.rows.owner()
        lives = {row["id"]: row for row in await circle.rows.claim(owner, list(circle.runs.values()))}
        own = [await stack.enter_async_context(database.transaction()) for _ in names]
        for connection, name in zip(own, names, strict=True):
            await connection.fetch(queries("engine")["lock_runs"], circle.rows.tenant, [circle.runs[name]])
        for connection, name, other in zip(own, names, (*names[1:], names[0]), strict=True):
            items = [_invoking(circle.rows, lives[circle.runs[name]], await _workflow(circle.rows, other))]
            statement, arguments = prepared(owner, items, now_s=0.0)
            answer = await connection.fetchrow(statement, *arguments)
            assert answer["result"] == "d"
    assert await circle.statuses() == [Status.WAITING] * length
    await circle.apply_marks()
    faults = [await circle.fault(name) for name in names]
    assert sum(fault is not None for fault in faults) == 1, "one gives way, the others get its result"
    assert (await circle.statuses()).count(Status.QUEUED) == 1
    assert await circle.rows.value("select count(*) from rt.mark") == 0


async def test_a_circle_is_not_judged_while_somebody_is_at_one_of_its_runs(circle: Circle) -> None:
    await circle.start("a", "b", "c")
    await circle.invoke("a", "b")
    await circle.invoke("b", "c")
    await circle.apply_marks()
    async with circle.rows.locked(circle.runs["b"]):
        await circle.invoke("c", "a")
        await circle.apply_marks()
        assert await circle.fault("c") is None
        assert await circle.rows.value("select count(*) from rt.mark") == 1
    await circle.apply_marks()
    assert await circle.fault("c") is not None


async def test_the_workflow_catches_it_and_goes_on_at_once(hand: Hand, rows: LiveRows) -> None:
    """With nobody but an executor: it does not wait for a sweep."""
    await hand.declare({"name": "self", "idempotency": "'one'"})
    invoke = {"op": "invoke", "id": "i", "workflow": "self", "data": {}}
    async with executing(hand.database, {"self": replaying(invoke, completed("after"))}) as (executor, functions):
        run = await hand.start("self")
        executor.hint([run])
        await functions.until(lambda: functions.executions("after") > 0)
        await until(lambda: _ended(rows, run))
    assert await rows.status(run) is Status.COMPLETED


def _invoking(rows: LiveRows, live: asyncpg.Record, workflow: int) -> CommitItem:
    child = uuid4()
    start = rows.start_row(id=child, parent=live["id"], wf=workflow, idem=key_text("one"), source="invoke")
    return CommitItem(
        run=live["id"],
        tenant=rows.tenant,
        epoch=live["epoch"],
        rev=live["rev"],
        mail=live["mail"],
        keep=False,
        st="w",
        steps=1,
        wait_rows=(rows.wait("c", sid="i", run=live["id"], child=child, delay_ms=DAY_MS),),
        start_rows=(start,),
    )


async def _workflow(rows: LiveRows, name: str) -> int:
    return int(await rows.value("select id from rt.workflows where name = $1", name))


async def _ended(rows: LiveRows, run: UUID) -> bool:
    return await rows.live(run) is None
