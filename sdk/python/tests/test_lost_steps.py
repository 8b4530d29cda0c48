"""Step ids that differ at every call are noticed, and nothing that a deterministic workflow does is taken for it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runr_workflows import AsyncStep, Context, NonRetriableError, Step, StepError, Workflows
from runr_workflows.lost_steps import MOST_IN_A_ROW, LostSteps
from sdk.python.tests.alarms import SIGN
from sdk.python.tests.engine import KEY, NOW, RUN_ID, FakeEngine, Run

NAME = "NonDeterminismError"


@pytest.fixture
def ids() -> Iterator[str]:
    """Ids as a random number in them makes them."""
    return (f"a{random.random()}" for _ in itertools.count())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if SIGN in record.getMessage()]


def registry() -> Workflows:
    return Workflows(signing_key=KEY, clock=lambda: NOW)


def ended(engine: FakeEngine, workflow: str = "w") -> Run:
    return engine.run(workflow, most=3 * MOST_IN_A_ROW)


class TestDiffering:
    """Workflows whose ids differ."""

    def test_a_random_id_fails_the_run_and_is_told_once(
        self, wf: Workflows, engine: FakeEngine, ids: Iterator[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        bodies: list[int] = []

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> None:
            step.run("first", lambda: None)
            for number in range(1_000):
                step.run(next(ids), bodies.append, number)

        run = ended(engine)

        assert (run.status, run.error and run.error["name"]) == ("failed", NAME)
        assert len(bodies) == MOST_IN_A_ROW
        executed = [step_id for _, step_id in run.kinds]
        assert run.error is not None
        assert repr(executed[-1]) in run.error["message"]
        (told,) = warnings(caplog)
        assert told.startswith(f"workflow w, run {RUN_ID}: step {executed[2]!r} was new")
        assert f"did not ask for {executed[1]!r}, of which" in told

    def test_a_retry_of_such_a_run_is_judged_anew(self, wf: Workflows, engine: FakeEngine, ids: Iterator[str]) -> None:
        bodies: list[int] = []

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> None:
            step.run(next(ids), bodies.append, 0)
            raise AssertionError("never reached")

        for times in (1, 2):
            assert ended(engine).error is not None
            assert len(bodies) == times * MOST_IN_A_ROW

    @pytest.mark.parametrize("gathered", [False, True])
    def test_in_async_workflows(self, wf: Workflows, engine: FakeEngine, ids: Iterator[str], gathered: bool) -> None:
        bodies: list[int] = []

        @wf.workflow("w")
        async def workflow(ctx: Context, step: AsyncStep) -> None:
            if gathered:
                await asyncio.gather(*(step.run(next(ids), bodies.append, number) for number in range(5)))
            for number in range(5):
                await step.run(next(ids), bodies.append, number)

        run = ended(engine)

        assert run.error is not None
        assert run.error["name"] == NAME
        assert len(bodies) == MOST_IN_A_ROW

    @pytest.mark.parametrize(
        "call",
        [
            lambda step, id: step.sleep(id, "1s"),
            lambda step, id: step.wait_for_event(id, "e"),
            lambda step, id: step.invoke(id, "child"),
            lambda step, id: step.send_event(id, {"name": "e"}),
            lambda step, id: step.run(id, fail_for_now),
        ],
    )
    def test_of_every_kind(
        self, wf: Workflows, engine: FakeEngine, ids: Iterator[str], call: Callable[[Step, str], Any]
    ) -> None:
        @wf.workflow("w", retries=20)
        def workflow(ctx: Context, step: Step) -> None:
            while True:
                call(step, next(ids))

        run = ended(FakeEngine(wf.handle_request, retries=10_000))

        assert run.error is not None
        assert run.error["name"] == NAME
        assert len(run.kinds) == MOST_IN_A_ROW


def fail_for_now() -> None:
    raise OSError("not now")


class TestTolerated:
    """Code that is not strictly deterministic, and comes to its end."""

    def test_a_list_that_is_read_between_steps(
        self, wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture
    ) -> None:
        open_bills = list(range(MOST_IN_A_ROW))

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> str:
            for bill in list(open_bills):
                step.run(f"pay-{bill}", open_bills.remove, bill)
            return "paid"

        assert ended(engine).output == "paid"
        assert len(warnings(caplog)) == 1

    def test_a_flag_that_changes(self, wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture) -> None:
        calls = itertools.count()

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> str:
            flag = next(calls) >= 3
            for number in range(3):
                step.run(f"{'new' if flag else 'old'}-{number}", lambda: None)
            for number in range(2 * MOST_IN_A_ROW):
                step.run(f"rest-{number}", lambda: None)
            return "done"

        assert ended(engine).output == "done"
        assert len(warnings(caplog)) == 1

    def test_a_step_that_is_given_up_by_a_timeout_at_every_call(
        self, wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture
    ) -> None:
        @wf.workflow("w")
        async def workflow(ctx: Context, step: AsyncStep) -> str:
            try:
                async with asyncio.timeout(0):
                    await step.run("slow", asyncio.sleep, 60)
            except TimeoutError:
                await step.run("instead", lambda: None)
            for number in range(MOST_IN_A_ROW + 20):
                await step.run(f"s{number}", lambda: None)
            return "done"

        assert ended(engine).output == "done"
        assert warnings(caplog) == []


class TestDeployments:
    """Other code answers for the same run."""

    def test_a_new_first_step_and_other_names(self, caplog: pytest.LogCaptureFixture) -> None:
        before, after = chain("old", 2 * MOST_IN_A_ROW), chain("new", 2 * MOST_IN_A_ROW)
        steps: dict[str, Any] = {}
        advance(before, steps, MOST_IN_A_ROW + 50)
        while advance(after, steps, 1) != "run_completed":
            pass
        assert sum(step_id.startswith("new") for step_id in steps) == 2 * MOST_IN_A_ROW
        (told,) = warnings(caplog)
        assert "step 'new-0' was new" in told
        assert "'old-0', 'old-1', 'old-2', 'old-3', 'old-4' and 145 more, of which" in told

    def test_both_versions_answer_in_turns(self, caplog: pytest.LogCaptureFixture) -> None:
        versions = itertools.cycle([chain("old", 2 * MOST_IN_A_ROW), chain("new", 2 * MOST_IN_A_ROW)])
        steps: dict[str, Any] = {}
        while advance(next(versions), steps, 1) != "run_completed":
            pass
        assert len(warnings(caplog)) == 2, "each process once"

    @pytest.mark.parametrize("max_ops", [1, 20])
    @pytest.mark.parametrize("kind", ["sync", "async", "gathered"])
    def test_a_step_that_was_renamed(self, caplog: pytest.LogCaptureFixture, kind: str, max_ops: int) -> None:
        steps: dict[str, Any] = {}
        with renaming("reserve", kind) as before:
            advance(before, steps, 1)
        assert list(steps) == ["reserve"]
        assert warnings(caplog) == []

        with renaming("reserve-funds", kind) as after:
            while advance(after, steps, 1, max_ops=max_ops) != "run_completed":
                pass

        assert list(steps) == ["reserve", "reserve-funds", "pay", "last"]
        (told,) = warnings(caplog)
        assert told.startswith(
            f"workflow w, run {RUN_ID}: step 'reserve-funds' was new and was executed, and the code before it did not"
            " ask for 'reserve', of which a result is stored: a step that was renamed has its effect twice."
        )

    @pytest.mark.parametrize("call", ["sleep", "fails"])
    def test_a_renamed_one_of_another_kind_or_that_fails(self, caplog: pytest.LogCaptureFixture, call: str) -> None:
        wf = registry()

        @wf.workflow("w")
        def workflow(ctx: Context, step: Step) -> None:
            if call == "sleep":
                step.sleep("pause-2", "1s")
            else:
                step.run("pause-2", fail_for_now)

        FakeEngine(wf.handle_request).execute("w", {"pause": {"status": "completed", "output": None}})

        (told,) = warnings(caplog)
        assert "step 'pause-2' was new" in told

    def test_a_removed_one_is_told_with_the_next_that_is_new(self, caplog: pytest.LogCaptureFixture) -> None:
        steps: dict[str, Any] = {f"n-{number}": {"status": "completed", "output": None} for number in range(3)}
        assert advance(chain("n", 2), steps, 1) == "run_completed"
        assert warnings(caplog) == [], "nothing was executed"
        advance(chain("n", 2, last="new"), steps, 1)
        (told,) = warnings(caplog)
        assert "did not ask for 'n-2', of which" in told


@contextmanager
def renaming(name: str, kind: str) -> Iterator[FakeEngine]:
    """A process with a version of the code in which a step has this name."""
    wf = registry()

    def workflow(ctx: Context, step: Step) -> None:
        for step_id in (name, "pay", "last"):
            step.run(step_id, lambda: None)

    async def in_line(ctx: Context, step: AsyncStep) -> None:
        for step_id in (name, "pay", "last"):
            await step.run(step_id, lambda: None)

    async def gathered(ctx: Context, step: AsyncStep) -> None:
        await asyncio.gather(step.run(name, lambda: None), step.run("pay", lambda: None))
        await step.run("last", lambda: None)

    wf.workflow("w")({"sync": workflow, "async": in_line, "gathered": gathered}[kind])
    try:
        yield FakeEngine(wf.handle_request)
    finally:
        wf.close()


def chain(name: str, length: int, last: str | None = None) -> FakeEngine:
    """A process with a version of the code."""
    wf = registry()

    @wf.workflow("w")
    def workflow(ctx: Context, step: Step) -> None:
        for number in range(length):
            step.run(f"{name}-{number}", lambda: None)
        if last is not None:
            step.run(last, lambda: None)

    return FakeEngine(wf.handle_request)


def advance(process: FakeEngine, steps: dict[str, Any], times: int, *, max_ops: int = 1) -> str:
    """Some invocations of one run by one process; the last op."""
    op: dict[str, Any] = {}
    for _ in range(times):
        for op in process.answer("w", steps, max_ops=max_ops):
            if "id" in op:
                steps[op["id"]] = {"status": "completed", "output": op.get("output")}
    return str(op["op"])


@pytest.mark.parametrize("of_its_own", [0, 20])
def test_branches_that_race_are_not_judged(
    wf: Workflows, engine: FakeEngine, caplog: pytest.LogCaptureFixture, of_its_own: int
) -> None:
    chance = random.Random(7)

    @wf.workflow("w")
    async def workflow(ctx: Context, step: AsyncStep) -> int:
        async def branch(number: int) -> None:
            for _ in range(chance.randrange(25)):
                await asyncio.sleep(0)
            await step.run(f"b{number}", lambda: None)
            await step.run(f"c{number}", lambda: None)

        branches = [asyncio.create_task(branch(number)) for number in range(MOST_IN_A_ROW)]
        for number in range(of_its_own):
            for _ in range(chance.randrange(25)):
                await asyncio.sleep(0)
            await step.run(f"m{number}", lambda: None)
        await asyncio.gather(*branches)
        return len(branches)

    assert ended(engine).output == MOST_IN_A_ROW
    assert NAME not in caplog.text
    assert of_its_own or warnings(caplog) == []


class Drawn:
    """A deterministic workflow of many kinds of steps, whose bodies do what they like."""

    def __init__(self, program: list[str], chance: random.Random) -> None:
        self._program = program
        self._chance = chance

    def body(self, kind: str) -> float:
        if kind == "fail":
            raise NonRetriableError("for good")
        if kind == "flaky" and self._chance.random() < 0.5:
            raise OSError("for now")
        return self._chance.random()

    def workflow(self, ctx: Context, step: Step) -> None:
        for place, kind in enumerate(self._program):
            if kind == "sleep":
                step.sleep("pause", "1s")
            else:
                self._work(step, f"{kind}-{place}", kind)

    def _work(self, step: Step, step_id: str, kind: str) -> None:
        try:
            result = step.run(step_id, self.body, kind)
        except StepError:
            step.run("compensate", self.body, "run")
            return
        for _ in range(round(result * 10) if kind == "loop" else 0):
            step.run("again", self.body, "run")
        if kind == "branch" and result < 0.5:
            step.run("taken", self.body, "run")


programs = st.lists(st.sampled_from(["run", "fail", "flaky", "sleep", "loop", "branch"]), min_size=1, max_size=25)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs, seed=st.integers(0, 2**32), lost=st.floats(0, 0.6), processes=st.integers(1, 3))
def test_nothing_deterministic_is_told(
    caplog: pytest.LogCaptureFixture, program: list[str], seed: int, lost: float, processes: int
) -> None:
    """Whatever steps fail, whatever answers are lost, and whichever process is asked."""
    caplog.clear()
    chance = random.Random(seed)
    drawn = Drawn(program, chance)
    engines = []
    for _ in range(processes):
        wf = registry()
        wf.workflow("w")(lambda ctx, step: drawn.workflow(ctx, step))
        engines.append(FakeEngine(wf.handle_request))
    steps: dict[str, Any] = {}
    for _ in range(2_000):
        op = chance.choice(engines).execute("w", steps)
        if op["op"] == "run_completed":
            break
        if chance.random() >= lost:
            steps.update(memoized(op))
    else:
        raise AssertionError(f"it does not end: {list(steps)}")
    assert warnings(caplog) == []


def memoized(op: dict[str, Any]) -> dict[str, Any]:
    """What the engine keeps of an op, by step id."""
    if op["op"] != "step_failed":
        return {op["id"]: {"status": "completed", "output": op.get("output")}}
    return {op["id"]: {"status": "failed", "error": op["error"]}} if op.get("non_retriable") else {}


def test_what_is_remembered_is_bounded() -> None:
    lost_steps = LostSteps(most_runs=3)
    for number in range(10):
        lost_steps.watch("w", f"r{number}").answered("a", {"a"})
    assert [lost_steps.known(("w", f"r{number}")) is not None for number in (6, 7, 8, 9)] == [False, True, True, True]
    lost_steps.watch("w", "r8").ended()
    assert lost_steps.known(("w", "r8")) is None
