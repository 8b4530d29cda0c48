"""Several steps in one answer (protocol section 4, rulings S10, P11): asked for, stored and dropped together."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest
from runr_workflows import Context, Step, StepError, Workflows

from services.core.domain.envelope import seal
from services.core.domain.run import Status
from services.core.domain.signature import signature_header
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.runtime.clock import SystemClock
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import LeaseSettings
from services.executor import drive
from services.executor.function_client import RawAnswer, RequestKind, Target
from services.executor.incarnation import Incarnation
from services.scheduler.duties.rescue import Rescue
from tests.support.engine import ScriptedFunctions, kill, living, make_incarnation
from tests.support.fake_function import KEY, Answer, Request, completed
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows
from tests.support.waiting import until

LEASE = LeaseSettings(ttl_s=30.0, heartbeat_s=0.5)
OVER_THE_LIMIT = "x" * (1024 * 1024 + 1)
LATER = {"op": "sleep", "id": "later", "duration": "1d"}


class Sdk:
    """`FunctionClient` over workflows of the Python SDK in this process. `bodies` counts executions by step."""

    def __init__(self) -> None:
        self.workflows = Workflows(signing_key=KEY, clock=lambda: 0)
        self.requests: list[Request] = []
        self.answers: list[list[dict[str, Any]]] = []
        self.bodies: Counter[str] = Counter()

    def body(self, step: str, output: Any = None) -> Any:
        """A body that counts."""
        self.bodies[step] += 1
        return output

    async def call(
        self, target: Target, kind: RequestKind, request_text: str, headers: Mapping[str, str], timeout_s: float
    ) -> RawAnswer:
        """See `FunctionClient.call`."""
        self.requests.append(json.loads(request_text))
        header = signature_header((KEY,), 0, request_text)
        status, body = await self.workflows.handle_request_async(seal(request_text, header), {})
        self.answers.append(json.loads(body)["ops"])
        return RawAnswer(status, body)


class Blade:
    """A probe that stops the executor for ever the n-th time that it comes to this point."""

    def __init__(self, point: str, times: int) -> None:
        self.point, self.left = point, times
        self.fell = asyncio.Event()

    async def __call__(self, point: str) -> None:
        self.left -= point == self.point
        if self.left <= 0:
            self.fell.set()
            await asyncio.Event().wait()


@pytest.fixture
def sdk() -> Iterator[Sdk]:
    made = Sdk()
    yield made
    made.workflows.close()


def counted(sdk: Sdk, steps: int) -> None:
    """The workflow `work`: so many steps, the sum of what they return."""

    @sdk.workflows.workflow("work")
    def work(ctx: Context, step: Step) -> int:
        return sum(step.run(f"s{number}", sdk.body, f"s{number}", number) for number in range(steps))


def executor(rows: LiveRows, sealer: Sealer, client: Any, **options: Any) -> Incarnation:
    return make_incarnation(rows.database, client, lease=LEASE, definitions=DefinitionsCache(sealer), **options)


async def ended(rows: LiveRows, *runs: UUID) -> None:
    """Wait until these runs have ended; what a scheduler does for runs of the dead is done meanwhile."""
    rescue = Rescue(rows.database, Hints(NullPublisher()), SystemClock(), LEASE, lambda: None, settle_s=0)

    async def over() -> bool:
        await rescue.run_once()
        return bool(await rows.value("select count(*) = 0 from rt.live where id = any ($1)", list(runs)))

    await until(over, guard_s=30)


async def stored(rows: LiveRows, run: UUID) -> list[tuple[str, str]]:
    """Id and status of the run's steps, in order."""
    query = f"select sid, status::text from t_{rows.tenant}.steps where run = $1 order by seq"
    return [tuple(row) for row in await rows.rows(query, run)]


async def output(rows: LiveRows, run: UUID) -> Any:
    return json.loads(await rows.value("select coalesce(output, error) from rt.ends where run = $1", run))


def checkpointed(max_steps: int, **options: Any) -> dict[str, Any]:
    return {"name": "work", "checkpoint": {"max_steps": max_steps, "max_time": "5s"}, **options}


async def test_only_a_workflow_with_a_checkpoint_is_asked_for_several(
    hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk
) -> None:
    counted(sdk, 4)
    for name in ("plain", "other"):
        sdk.workflows.workflow(name)(lambda ctx, step: step.run("s", int))
    await hand.declare(checkpointed(10), {"name": "plain"}, {"name": "other", "checkpoint": {"max_steps": 1}})
    runs = [await hand.start(name) for name in ("work", "plain", "other")]
    async with living(executor(rows, sealer, sdk)):
        await ended(rows, *runs)
    asked = {(request["workflow"], request.get("max_ops"), request.get("budget_ms")) for request in sdk.requests}
    assert asked == {("work", 10, 5000), ("plain", None, None), ("other", None, None)}
    assert [len(answer) for answer in sdk.answers if len(answer) > 1] == [5]
    assert [await output(rows, run) for run in runs] == [6, 0, 0]


async def test_the_answer_is_one_commit(hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk) -> None:
    counted(sdk, 8)
    await hand.declare(checkpointed(3))
    run = await hand.start("work")
    commits = Counter[str]()

    async def probe(point: str) -> None:
        commits[point] += 1

    async with living(executor(rows, sealer, sdk, probe=probe)):
        await ended(rows, run)
    assert [len(answer) for answer in sdk.answers] == [3, 3, 3]
    assert commits["after commit"] == 3
    assert await stored(rows, run) == [(f"s{number}", "c") for number in range(8)]
    query = f"select count(distinct xmin::text) from t_{rows.tenant}.steps where run = $1"
    assert await rows.value(query, run) == 3
    assert await output(rows, run) == 28


@pytest.mark.parametrize(
    ("point", "times"), [("before commit", 1), ("before commit", 3), ("after commit", 1), ("before effects", 2)]
)
async def test_a_crash_runs_at_most_the_steps_of_one_answer_again(
    hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk, point: str, times: int
) -> None:
    counted(sdk, 10)
    await hand.declare(checkpointed(4))
    run = await hand.start("work")
    blade = Blade(point, times)
    doomed = executor(rows, sealer, sdk, probe=blade)
    await doomed.owner.register()
    life = asyncio.create_task(doomed.run())
    await asyncio.wait_for(blade.fell.wait(), 30)
    await kill(rows.database, doomed, life)
    before = set(await stored(rows, run))
    async with living(executor(rows, sealer, sdk)):
        await ended(rows, run)
    assert await stored(rows, run) == [(f"s{number}", "c") for number in range(10)]
    assert await output(rows, run) == 45
    again = {step for step, count in sdk.bodies.items() if count > 1}
    assert max(sdk.bodies.values()) <= 2
    assert len(again) <= 4
    assert not again & {step for step, _ in before}


async def test_a_cancel_drops_the_whole_answer(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    """As it would if the run were taken by another: nothing of the answer is written."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def probe(point: str) -> None:
        if point == "before commit":
            reached.set()
            await go_on.wait()

    await hand.declare(checkpointed(5))
    run = await hand.start("work")
    functions = ScriptedFunctions({"work": lambda _: [completed("a"), completed("b"), {"op": "run_completed"}]})
    async with living(executor(rows, sealer, functions, probe=probe)):
        await asyncio.wait_for(reached.wait(), 15)
        await hand.cancel(run)
        go_on.set()
        await until(lambda: _nobody_holds(rows))
    assert await stored(rows, run) == []
    assert await rows.status(run) is Status.CANCELLED
    assert len(functions.requests) == 1


async def _nobody_holds(rows: LiveRows) -> bool:
    return bool(await rows.value("select count(*) = 0 from rt.live"))


async def test_what_follows_a_step_over_a_limit_is_discarded(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    def function(request: Request) -> Answer:
        if "big" not in request["steps"]:
            return [completed("a"), completed("big", OVER_THE_LIMIT), completed("charged"), {"op": "run_completed"}]
        return [completed("refunded"), {"op": "run_completed", "output": request["steps"]["big"]["error"]["name"]}]

    await hand.declare(checkpointed(5))
    run = await hand.start("work")
    async with living(executor(rows, sealer, ScriptedFunctions({"work": function}))):
        await ended(rows, run)
    assert await stored(rows, run) == [("a", "c"), ("big", "f"), ("refunded", "c")]
    assert await output(rows, run) == "TooLarge"


async def test_the_sdk_does_not_go_on_after_a_result_that_may_be_refused(
    hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk
) -> None:
    @sdk.workflows.workflow("work")
    def work(ctx: Context, step: Step) -> str:
        step.run("a", sdk.body, "a")
        try:
            step.run("big", sdk.body, "big", OVER_THE_LIMIT)
            step.run("charge", sdk.body, "charge")
        except StepError as error:
            step.run("refund", sdk.body, "refund")
            return error.name
        return "charged"

    await hand.declare(checkpointed(5))
    run = await hand.start("work")
    async with living(executor(rows, sealer, sdk)):
        await ended(rows, run)
    assert sdk.bodies == {"a": 1, "big": 1, "refund": 1}
    assert await output(rows, run) == "TooLarge"


async def test_an_answer_of_memoized_steps_alone_is_a_strike(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    functions = ScriptedFunctions({"work": lambda _: [completed("a"), completed("b")]})
    await hand.declare(checkpointed(5))
    run = await hand.start("work")
    async with living(executor(rows, sealer, functions)):
        await ended(rows, run)
    assert len(functions.requests) == 4
    assert await stored(rows, run) == [("a", "c"), ("b", "c")]
    assert (await output(rows, run))["name"] == "NonDeterminismError"


async def test_memoized_steps_among_new_ones_are_skipped_and_no_strike(
    hand: Hand, rows: LiveRows, sealer: Sealer
) -> None:
    def function(request: Request) -> Answer:
        new = len(request["steps"])
        if new == 6:
            return {"op": "run_completed", "output": request["steps"]["s0"]["output"]}
        return [completed(f"s{number}", f"of answer {new}") for number in range(new + 1)]

    await hand.declare(checkpointed(10))
    run = await hand.start("work")
    async with living(executor(rows, sealer, ScriptedFunctions({"work": function}))):
        await ended(rows, run)
    assert await output(rows, run) == "of answer 0"
    assert [sid for sid, _ in await stored(rows, run)] == [f"s{number}" for number in range(6)]


async def test_more_ops_than_were_asked_for_are_no_answer(hand: Hand, rows: LiveRows, sealer: Sealer) -> None:
    functions = ScriptedFunctions({"work": lambda _: [completed(name) for name in "abc"]})
    await hand.declare(checkpointed(2, retries=0))
    run = await hand.start("work")
    async with living(executor(rows, sealer, functions)):
        await ended(rows, run)
    assert await stored(rows, run) == []
    assert (await output(rows, run))["name"] == "ProtocolError"


async def test_after_a_failed_attempt_what_may_be_lost_goes_one_by_one(
    hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the third step, which kills its process each time, has its attempts, and those before it run once more."""
    counted(sdk, 9)
    dies = [True, True]
    body = sdk.body

    def deadly(step: str, result: Any = None) -> Any:
        if step == "s2" and dies:
            dies.pop()
            raise KeyboardInterrupt
        return body(step, result)

    monkeypatch.setattr(sdk, "body", deadly)
    await hand.declare(checkpointed(4))
    run = await hand.start("work")
    client = Failing(sdk)

    async def has_failed_twice_and_completed() -> bool:
        await hand.fire(run)
        return client.failures >= 2 and await rows.status(run) is Status.COMPLETED

    async with living(executor(rows, sealer, client)):
        await until(has_failed_twice_and_completed, 60)
    assert [request.get("max_ops") for request in sdk.requests] == [4, *[None] * 7, 4]
    assert sdk.bodies == {"s0": 2, "s1": 2, **{f"s{number}": 1 for number in range(2, 9)}}
    assert await output(rows, run) == 36


class Failing:
    """An `Sdk` of which the process is gone where a body says so."""

    def __init__(self, sdk: Sdk) -> None:
        self.failures = 0
        self._sdk = sdk

    async def call(self, *args: Any) -> RawAnswer:
        """See `FunctionClient.call`."""
        try:
            return await self._sdk.call(*args)
        except KeyboardInterrupt:
            self.failures += 1
            return RawAnswer(502, b"the process is gone")


@pytest.mark.parametrize(("checkpoint", "warned"), [({}, 1), ({"checkpoint": {"max_steps": 3}}, 0)])
async def test_many_steps_over_plain_http_are_warned_of_once(
    hand: Hand,
    rows: LiveRows,
    sealer: Sealer,
    sdk: Sdk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    checkpoint: dict[str, Any],
    warned: int,
) -> None:
    monkeypatch.setattr(drive, "_MANY_STEPS", 5)
    counted(sdk, 8)
    await hand.declare({"name": "work", **checkpoint})
    run = await hand.start("work")
    with caplog.at_level(logging.WARNING, "services.executor.drive"):
        async with living(executor(rows, sealer, sdk)):
            await ended(rows, run)
    found = [record.getMessage() for record in caplog.records if "has 5 steps" in record.getMessage()]
    assert len(found) == warned


async def test_a_failing_step_keeps_its_count_of_attempts(hand: Hand, rows: LiveRows, sealer: Sealer, sdk: Sdk) -> None:
    seen: list[tuple[str, int]] = []

    @sdk.workflows.workflow("work")
    def work(ctx: Context, step: Step) -> str:
        def flaky(name: str, until: int) -> None:
            seen.append((name, ctx.attempt))
            if ctx.attempt < until:
                raise ValueError(name)

        step.run("a", flaky, "a", 0)
        step.run("b", flaky, "b", 2)
        step.run("c", flaky, "c", 1)
        return "done"

    await hand.declare(checkpointed(5))
    run = await hand.start("work")

    async def completed() -> bool:
        await hand.fire(run)
        return await rows.status(run) is Status.COMPLETED

    async with living(executor(rows, sealer, sdk)):
        await until(completed, 60)
    assert seen == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]
    query = f"select sid, att from t_{rows.tenant}.steps where run = $1 order by seq"
    assert [tuple(row) for row in await rows.rows(query, run)] == [("a", 1), ("b", 3), ("c", 2)]
