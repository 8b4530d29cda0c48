"""Cases of `tests/vectors/data/cases.jsonl` about runs and their steps, over the whole stack."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from runr_workflows import Context, Step, Workflows

from tests.support.passing_time import time_passes
from tests.support.rest import Rest, step_of, steps_of
from tests.support.stack import Stack
from tests.support.workflow_app import Bodies, serving

REQUEST_TIMEOUT_S = 3.0


def slow_at_first(wf: Workflows, bodies: Bodies) -> None:
    """The first execution of its step is held for as long as the test wants, later ones are not."""

    @wf.workflow("slow-at-first", retries=2)
    def slow(ctx: Context, step: Step) -> str:
        def body() -> str:
            name = f"attempt {bodies.of(ctx.run_id).total()}"
            bodies.record(ctx.run_id, name)
            return name

        return step.run("s", body)


async def test_case_20_late_answer_after_lease_loss(stack: Stack, rest: Rest) -> None:
    impatient = {"WORKFLOWS_REQUEST_TIMEOUT": f"{REQUEST_TIMEOUT_S:g}s"}
    async with stack.given("executor", impatient), serving(rest, slow_at_first) as bodies:
        bodies.hold("attempt 0")
        run = await rest.start("slow-at-first")
        assert await rest.completed(run) == "attempt 1"
        bodies.let_go()  # only now does attempt 0 answer
        first, second = (bodies.times(run, f"attempt {number}")[0] for number in (0, 1))
        found = await rest.run(run)
    assert second - first >= REQUEST_TIMEOUT_S + 1.6
    assert bodies.of(run) == {"attempt 0": 1, "attempt 1": 1}
    assert [each["error"]["name"] for each in found["attempts"]] == ["FunctionTimeout"]
    assert (step_of(found, "s")["output"], found["output"]) == ("attempt 1", "attempt 1")


def limited(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("limited", concurrency=2)
    def work(ctx: Context, step: Step) -> str:
        name = str(ctx.event["data"]["name"])
        if ctx.event["data"].get("naps"):
            bodies.record(ctx.run_id, name)  # in no step, after which it would have to wait for a slot to go to sleep
            step.sleep("nap", "1h")
        else:
            step.run(name, bodies.record, ctx.run_id, name)
        step.run(f"{name} again", bodies.record, ctx.run_id, f"{name} again")
        return name


async def test_case_25_slot_handover(rest: Rest) -> None:
    async with serving(rest, limited) as bodies:
        names = ("r1", "r2", "q1", "q2", "q3")
        for name in names:
            bodies.hold(name)
        runs = {name: await rest.start("limited", {"name": name, "naps": name == "r2"}) for name in names}

        async def running(*expected: str) -> None:
            """Wait until these run; then nobody else does."""
            for name in expected:
                await rest.becomes(runs[name], "running")
            assert [name for name in names if (await rest.run(runs[name]))["status"] == "running"] == list(expected)

        await running("r1", "r2")
        await rest.ok("POST", f"/runs/{runs['r1']}/cancel", {})
        await running("r2", "q1")
        await rest.ok("POST", f"/runs/{runs['q2']}/cancel", {})
        await running("r2", "q1")
        bodies.let_go("r2")
        await rest.becomes(runs["r2"], "sleeping")
        await running("q1", "q3")
        await time_passes(rest, runs["r2"])
        await rest.becomes(runs["r2"], "queued")
        await running("q1", "q3")
        # Queued last, but before what comes now: the next slot is its own.
        last = await rest.start("limited", {"name": "last"})
        bodies.hold("r2 again")
        bodies.let_go("q1")
        await running("r2", "q3")
        assert (await rest.run(last))["status"] == "queued"
        bodies.let_go()
        for name in ("q1", "q3", "r2"):
            assert await rest.completed(runs[name]) == name
        await rest.completed(last)
        found = {name: await rest.run(run) for name, run in runs.items()}
    # Nobody had a slot before another left it, also where nothing could be waited for.
    assert found["q1"]["started_at"] >= found["r1"]["ended_at"]
    assert found["q3"]["started_at"] >= step_of(found["r2"], "nap")["started_at"]


class Inside:
    """Counts the executions that are inside of bodies at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[str] = []
        self.most = 0

    def enter(self, run: str) -> None:
        with self._lock:
            self._runs.append(run)
            self.most = max(self.most, len(self._runs))

    def leave(self, run: str) -> None:
        with self._lock:
            self._runs.remove(run)


async def test_case_26_deadlock_free_invoke(rest: Rest) -> None:
    inside = Inside()

    def recursive(wf: Workflows, bodies: Bodies) -> None:
        @wf.workflow("countdown", concurrency=1)
        def countdown(ctx: Context, step: Step) -> list[int]:
            def body(name: str) -> None:
                inside.enter(ctx.run_id)
                bodies.record(ctx.run_id, name)
                inside.leave(ctx.run_id)

            n: int = ctx.event["data"]["n"]
            step.run("here", body, "here")
            below: list[int] = step.invoke("below", "countdown", data={"n": n - 1}) if n else []
            step.run("back", body, "back")
            return [n, *below]

    async with serving(rest, recursive):
        assert await rest.completed(await rest.start("countdown", {"n": 5})) == [5, 4, 3, 2, 1, 0]
        statuses = [run["status"] for run in await rest.runs("?workflow=countdown")]
    assert statuses == ["completed"] * 6
    assert inside.most == 1


def colliding(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("colliding")
    def collide(ctx: Context, step: Step) -> list[int]:
        def body(number: int) -> int:
            bodies.record(ctx.run_id, f"f{number}")
            return number

        return [step.run(id, body, number) for number, id in enumerate(("add", "add", "add:1"), 1)]


async def test_case_31_step_id_collision(rest: Rest) -> None:
    async with serving(rest, colliding) as bodies:
        run = await rest.start("colliding")
        assert await rest.completed(run) == [1, 2, 3]
        found = await rest.run(run)
    assert list(steps_of(found)) == ["add", "add:1", "add:1:1"]
    assert bodies.of(run) == {"f1": 1, "f2": 1, "f3": 1}


def redeployable(wf: Workflows, bodies: Bodies, nap: Any, ids: Collection[str]) -> None:
    """A workflow that sleeps between two steps; `nap` and the names of the steps are those of this deployment."""

    @wf.workflow("redeployed")
    def work(ctx: Context, step: Step) -> dict[str, Any]:
        before, after = ids
        done = [step.run(before, body, ctx, before)]
        step.sleep("cool-off", nap)
        return {"done": [*done, step.run(after, body, ctx, after)]}

    def body(ctx: Context, name: str) -> str:
        bodies.record(ctx.run_id, name)
        return name


async def test_case_35_sleep_duration_change(rest: Rest) -> None:
    async with serving(rest, lambda wf, bodies: redeployable(wf, bodies, "10m", ("a", "b"))) as old:
        run = await rest.start("redeployed")
        asleep = await rest.becomes(run, "sleeping")
    async with serving(rest, lambda wf, bodies: redeployable(wf, bodies, "1h", ("a", "b"))) as new:
        assert await rest.run(run) == asleep
        await time_passes(rest, run)
        assert await rest.completed(run) == {"done": ["a", "b"]}
    assert (old.of(run), new.of(run)) == ({"a": 1}, {"b": 1})


async def test_a_step_renamed_in_a_deployment_is_executed_again(rest: Rest) -> None:
    async with serving(rest, lambda wf, bodies: redeployable(wf, bodies, "1h", ("old", "b"))) as old:
        run = await rest.start("redeployed")
        await rest.becomes(run, "sleeping")
    async with serving(rest, lambda wf, bodies: redeployable(wf, bodies, "1h", ("new", "b"))) as new:
        await time_passes(rest, run)
        assert await rest.completed(run) == {"done": ["new", "b"]}
        found = await rest.run(run)
    assert (old.of(run), new.of(run)) == ({"old": 1}, {"new": 1, "b": 1})
    assert steps_of(found) == dict.fromkeys(["old", "cool-off", "new", "b"], "completed")
