"""What a run tells of why it does not go on, read from a real database."""

from __future__ import annotations

import uuid
from uuid import UUID

import asyncpg

from services.cli.stalled import stalled
from services.core.domain.function_answer import Introspection, SdkInfo
from services.core.domain.json_text import JsonValue
from services.core.domain.op import RunCompleted, Sleep, StepCompleted
from services.core.domain.run import Status
from services.core.domain.run_record import RunFilter
from services.core.engine.sync import Syncer
from services.core.store.runs import RunReader
from tests.support.hand import Hand, hand
from tests.support.live_rows import LiveRows
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "hand", "sealer", "tenant"]


class Seen:
    """What readers are told."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.rows = LiveRows(hand.database, hand.tenant)
        self.reader = RunReader(hand.database)

    async def waits(self, run: UUID) -> tuple[str, str] | None:
        """What the run waits for. A list says the same of it as the run itself."""
        alone = (await self.reader.detail(self.hand.tenant, run)).run.waiting
        page = await self.reader.list(self.hand.tenant, RunFilter(ids=(run,)), after=None, limit=10)
        assert [each.waiting for each in page.runs] == [None if alone and alone.kind == "answer" else alone]
        return None if alone is None else (alone.kind, alone.message)

    async def ready_since(self, run: UUID, seconds: int) -> None:
        """It has been ready for so long."""
        await self.rows.rows("update rt.live set qk = qk - $2 * interval '1 s' where id = $1", run, seconds)

    async def at_a_worker(self, run: UUID) -> None:
        """A worker executes it."""
        taken = "update rt.live set st = 'r', qk = null, owner = $2, affinity = $3 where id = $1"
        await self.rows.rows(taken, run, await self.rows.owner(), uuid.uuid4())


async def served_by_workers(hand: Hand, *names: str) -> None:
    """A worker has declared these workflows."""
    workflows: list[JsonValue] = [{"name": name} for name in names]
    brought = Introspection(sdk=SdkInfo(name="fake"), workflows=workflows, capabilities=frozenset())
    await Syncer(hand.database, lambda _: None).accept(hand.tenant, "default", brought, code_version=1)


async def test_a_run_is_told_to_wait_for_an_executor_a_slot_its_time_and_its_next_attempt(hand: Hand) -> None:
    seen = Seen(hand)
    await hand.declare({"name": "work"}, {"name": "narrow", "concurrency": {"limit": 1, "key": "event.data.user"}})
    run = await hand.start("work")
    assert await seen.waits(run) == ("executor", "waits for an executor: none is alive")
    await seen.rows.owner(silent_ms=60_000)
    assert await seen.waits(run) == ("executor", "waits for an executor: none is alive")
    await seen.rows.owner()
    assert await seen.waits(run) == ("executor", "waits for an executor with room")
    assert await hand.fail(run, "FunctionUnreachable", "refused") is Status.DELAYED
    kind, said = await seen.waits(run) or ("", "")
    assert (kind, said.endswith(", attempt 2, because of FunctionUnreachable: refused")) == ("retry", True)
    assert said.startswith("tries again at 20")
    later = await seen.waits(await hand.start("work", delay_ms=3_600_000))
    assert later is not None
    assert later[0] == "start"
    first, second = [await hand.start("narrow", '{"user": 1}') for _ in range(2)]
    assert (await seen.rows.live(first))["st"] == "q"  # type: ignore[index]
    limited = "waits for a slot: the workflow's concurrency is limited to 1 for each event.data.user"
    assert await seen.waits(second) == ("slot", limited)


async def test_a_run_that_goes_on_sleeps_or_has_ended_waits_for_nothing(hand: Hand) -> None:
    seen = Seen(hand)
    run = await hand.start("work")
    await hand.hold(run)
    assert await seen.waits(run) is None
    assert await hand.answer(run, Sleep(id="nap", name="nap", for_ms=3_600_000)) is Status.SLEEPING
    assert await seen.waits(run) is None
    await hand.fire(run)
    assert await hand.answer(run, RunCompleted()) is Status.COMPLETED
    assert await seen.waits(run) is None


async def test_a_run_of_which_nothing_is_heard_says_since_when(hand: Hand) -> None:
    seen = Seen(hand)
    run = await hand.start("work")
    await hand.hold(run)
    await hand.answer(run, StepCompleted(id="one", name="one", output="1"))
    assert await seen.waits(run) is None
    await seen.rows.rows(f"update t_{hand.tenant}.steps set t0 = t0 - interval '1 h', t1 = t1 - interval '1 h'")
    assert await seen.waits(run) is None
    await seen.rows.rows("update rt.live set taken = taken - interval '10 s' where id = $1", run)
    kind, said = await seen.waits(run) or ("", "")
    assert (kind, said[:60]) == ("answer", "waits for an answer of the function that executes it, since ")
    await seen.rows.rows("update rt.live set affinity = $2 where id = $1", run, uuid.uuid4())
    assert "of the worker that" in (await seen.waits(run) or ("", ""))[1]


async def test_a_run_that_workers_alone_serve_tells_what_is_known_of_workers(hand: Hand) -> None:
    seen = Seen(hand)
    await seen.rows.owner()
    await served_by_workers(hand, "order", "pay")
    run, other, same = [await hand.start(name) for name in ("order", "pay", "order")]
    assert await seen.waits(run) == ("worker", "waits for a worker")
    await seen.ready_since(run, 3)
    nobody = "waits for a worker: none is connected that serves the workflow"
    assert await seen.waits(run) == ("worker", nobody)
    await seen.at_a_worker(other)
    assert await seen.waits(run) == ("worker", f"{nobody}, or all are busy")
    await seen.at_a_worker(same)
    assert await seen.waits(run) == ("worker", "waits for a worker with room: those that serve the workflow are busy")


async def test_runs_that_stall_are_found_for_whoever_watches_and_others_are_not(hand: Hand) -> None:
    seen = Seen(hand)
    await hand.declare({"name": "work"}, {"name": "narrow", "concurrency": 1})
    stuck, failed = [await hand.start("work") for _ in range(2)]
    await hand.start("work")
    await hand.start("work", delay_ms=3_600_000)
    await hand.start("narrow")
    await seen.ready_since(await hand.start("narrow"), 60)
    await seen.ready_since(stuck, 60)
    await hand.fail(failed, "FunctionUnreachable", "refused")
    connection = await asyncpg.connect(hand.database.dsn)
    try:
        found = {UUID(int=row["id"].int): (row["workflow"], wait.kind) for row, wait in await stalled(connection)}
    finally:
        await connection.close()
    assert found == {stuck: ("work", "executor"), failed: ("work", "retry")}
