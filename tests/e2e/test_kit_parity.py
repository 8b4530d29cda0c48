"""The test kit of the Python SDK follows the engine: the same stories, told to both, leave the same runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from runr_workflows import (
    AsyncStep,
    Context,
    InvokeError,
    NonRetriableError,
    RetryAfterError,
    Step,
    StepError,
    Workflows,
)
from runr_workflows.testing import replay

from tests.support.kit_programs import family, programs
from tests.support.kit_stage import KitStage, RealStage, Stage, Told, timeline
from tests.support.rest import Json, Rest
from tests.support.workflow_app import Bodies, serving

SOON = "100ms"
DRAWN = 120


class Tries:
    """A body that fails the first times, in each run."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def __call__(self, ctx: Context, times: int, error: Callable[[], Exception]) -> str:
        self._made[ctx.run_id] += 1
        if self._made[ctx.run_id] <= times:
            raise error()
        return "done"


def soon() -> Exception:
    return RetryAfterError("not yet", SOON)


def add(*values: int, **named: int) -> int:
    return sum(values) + sum(named.values())


def steps(wf: Workflows) -> None:
    tries = Tries()

    @wf.workflow("loop")
    def loop(ctx: Context, step: Step) -> list[Any]:
        done: list[Any] = [step.run("add", add, number, 1) for number in range(3)]
        step.sleep("none", 0)
        step.sleep("short", SOON)
        step.sleep_until("past", "2020-01-01T00:00:00Z")
        return [*done, step.run("named", add, 1, b=2), step.run("nothing", lambda: None)]

    @wf.workflow("stubborn", retries=2)
    def stubborn(ctx: Context, step: Step) -> list[str]:
        done = [step.run("twice", tries, ctx, 2, soon)]
        try:
            step.options(retries=1).run("never", tries, ctx, 99, soon)
        except StepError as error:
            done.append(f"{error.name} {error.message}")
        try:
            step.run("final", tries, ctx, 99, lambda: NonRetriableError("no"))
        except StepError as error:
            done.append(error.name)
        return done

    @wf.workflow("backoff", retries=1)
    def backoff(ctx: Context, step: Step) -> str:
        return step.run("once", tries, ctx, 1, lambda: ValueError("the first time"))

    @wf.workflow("gathered")
    async def gathered(ctx: Context, step: AsyncStep) -> list[int]:
        return list(await asyncio.gather(*[step.run("add", add, number) for number in range(3)]))

    @wf.workflow("checkpointed", checkpoint={"max_steps": 3}, retries=1)
    def checkpointed(ctx: Context, step: Step) -> int:
        step.run("first", tries, ctx, 1, soon)
        return sum(step.run("add", add, number) for number in range(7))

    @wf.workflow("outside", retries=2)
    def outside(ctx: Context, step: Step) -> str:
        step.run("before", add, 1)
        return tries(ctx, 1, soon)

    @wf.workflow("lost", retries=0)
    def lost(ctx: Context, step: Step) -> None:
        step.run("before", add, 1)
        raise KeyError("gone")

    @wf.workflow("uncaught", retries=0)
    def uncaught(ctx: Context, step: Step) -> None:
        step.run("fails", tries, ctx, 9, lambda: ValueError("for good"))


def each(*workflows: str) -> Callable[[Stage], Awaitable[list[Json]]]:
    async def tell(stage: Stage) -> list[Json]:
        return [await stage.end(run) for run in [await stage.start(name, {"n": 1}) for name in workflows]]

    return tell


def waits(wf: Workflows) -> None:
    @wf.workflow("paid", cancel_on=[{"event": "order.cancelled", "match": "data.id"}])
    def paid(ctx: Context, step: Step) -> Any:
        event = step.wait_for_event(
            "payment", "order.paid", match="data.id", if_="async.data.cents >= event.data.cents", timeout="1h"
        )
        late = step.wait_for_event("receipt", "order.receipt", timeout=SOON)
        early = step.wait_for_event("note", "order.note", match="data.id", timeout="1h", lookback="run")
        return [event and event["data"], late, early and early["data"]]

    @wf.workflow("limited", timeout="1s")
    def limited(ctx: Context, step: Step) -> None:
        step.wait_for_event("long", "never", timeout="1h")

    @wf.workflow("careless")
    def careless(ctx: Context, step: Step) -> list[str]:
        told = []
        for id, options in (
            ("name", {"event": "bad name"}),
            ("platform", {"event": "runr/other"}),
            ("match", {"event": "a", "match": "order.id"}),
        ):
            try:
                step.wait_for_event(id, **options)
            except StepError as error:
                told.append(error.name)
        bodies: tuple[tuple[str, Callable[[], Any]], ...] = (
            ("too-large", lambda: "x" * 1_100_000),
            ("no-json", object),
        )
        for id, body in bodies:
            try:
                step.run(id, body)
            except StepError as error:
                told.append(error.name)
        return told


async def tell_waits(stage: Stage) -> list[Json]:
    run = await stage.start("paid", {"id": "o-1", "cents": 100})
    await stage.waits(run, "payment")
    await stage.send("order.paid", {"id": "o-2", "cents": 100})
    await stage.send("order.paid", {"id": "o-1", "cents": 99})
    await stage.send("order.note", {"id": "o-1", "text": "before"})
    await stage.send("order.paid", {"id": "o-1", "cents": 100}, id="p-1")
    await stage.send("order.paid", {"id": "o-1", "cents": 200}, id="p-1")
    cancelled = await stage.start("paid", {"id": "o-3", "cents": 1})
    await stage.waits(cancelled, "payment")
    await stage.send("order.cancelled", {"id": "o-3"})
    by_hand = await stage.start("paid", {"id": "o-4", "cents": 1})
    await stage.waits(by_hand, "payment")
    await stage.cancel(by_hand)
    ended = [await stage.end(each) for each in (run, cancelled, by_hand)]
    return [*ended, *await each("limited", "careless")(stage)]


def families(wf: Workflows) -> None:
    @wf.workflow("parent")
    def parent(ctx: Context, step: Step) -> list[Any]:
        done: list[Any] = [step.invoke("works", "child", data={"n": 1})]
        for id, name, timeout in (
            ("fails", "broken", None),
            ("missing", "nowhere", None),
            ("slow", "sleepy", SOON),
            ("circle", "once", None),
        ):
            try:
                done.append(step.invoke(id, name, data={"key": "k"}, timeout=timeout))
            except InvokeError as error:
                done.append([error.name, error.message])
        return done

    @wf.workflow("child")
    def child(ctx: Context, step: Step) -> int:
        return step.run("add", add, ctx.event["data"]["n"], 1)

    @wf.workflow("broken", retries=0)
    def broken(ctx: Context, step: Step) -> None:
        raise ValueError("it is broken")

    @wf.workflow("sleepy")
    def sleepy(ctx: Context, step: Step) -> None:
        step.sleep("long", "1h")

    @wf.workflow("once", idempotency="event.data.key")
    def once(ctx: Context, step: Step) -> Any:
        try:
            return step.invoke("again", "once", data={"key": "k"})
        except InvokeError as error:
            return error.message

    @wf.workflow("cut-off")
    def cut_off(ctx: Context, step: Step) -> None:
        step.invoke("sleeps", "sleepy")


async def tell_families(stage: Stage) -> list[Json]:
    parent = await stage.end(await stage.start("parent"))
    cut_off = await stage.start("cut-off")
    await stage.waits(cut_off, "sleeps")
    await stage.cancel(cut_off)
    return [parent, await stage.end(cut_off)]


def senders(wf: Workflows) -> None:
    @wf.workflow("sender")
    def sender(ctx: Context, step: Step) -> Any:
        sent = step.send_event("tell", [{"name": "note", "data": {"n": n}} for n in range(2)])
        step.send_event("again", {"name": "note", "data": {"n": 9}, "id": "same"})
        step.send_event("and-again", {"name": "note", "data": {"n": 9}, "id": "same"})
        try:
            step.send_event("reserved", {"name": "runr/mine"})
        except StepError as error:
            return [len(sent["ids"]), error.name]

    @wf.workflow("listener", triggers=[{"event": "note.asked", "if": "event.data.n > 0"}], retries=0)
    def listener(ctx: Context, step: Step) -> None:
        raise ValueError("always")

    @wf.workflow("mourner", triggers=[{"event": "runr/run.failed", "if": "event.data.workflow == 'listener'"}])
    def mourner(ctx: Context, step: Step) -> Any:
        return ctx.event["data"]["error"]["message"]


async def tell_senders(stage: Stage) -> list[Json]:
    first = await stage.end(await stage.start("sender"))
    assert await stage.send("note.asked", {"n": 0}) == []
    (run,) = await stage.send("note.asked", {"n": 1})
    return [first, await stage.end(run)]


def late(wf: Workflows) -> None:
    tries = Tries()

    @wf.workflow("delayed", triggers=[{"event": "asked"}], timeout="2s", idempotency="event.data.n")
    def delayed(ctx: Context, step: Step) -> Any:
        heard = step.wait_for_event("heard", "heard", if_="async.data.ok && async.data.n != event.data.n", timeout="1m")
        return heard and heard["data"]["n"]

    @wf.workflow("asking")
    def asking(ctx: Context, step: Step) -> Any:
        ago = step.wait_for_event("ago", "heard", timeout="1m", lookback="1h")
        told: list[Any] = [ago and ago["data"]["n"]]
        for id, data in (("ended", {"n": 1}), ("again", {"n": 1}), ("late", {"n": 3})):
            try:
                told.append(step.invoke(id, "delayed", data=data))
            except InvokeError as error:
                told.append([error.name, error.message])
        return told

    @wf.workflow("stamped", retries=1)
    def stamped(ctx: Context, step: Step) -> Any:
        step.run("nothing", lambda: None)
        tries(ctx, 1, lambda: RetryAfterError("at once", "2020-01-01T00:00:00Z"))
        return [ctx.source, ctx.parent_run_id, ctx.replay, step.run("attempt", lambda: ctx.attempt)]


async def tell_late(stage: Stage) -> list[Json]:
    await stage.send("heard", {"n": 0, "ok": True})
    first = await stage.start("delayed", {"n": 1}, delay="200ms")
    await stage.waits(first, "heard")
    (second,) = await stage.send("asked", {"n": 2})
    await stage.waits(second, "heard")
    await stage.send("heard", {"n": 1, "ok": False})
    await stage.send("heard", {"n": 1, "ok": True})
    await stage.send("heard", {"n": 9, "ok": True})
    assert await stage.send("asked", {"n": 2}) == [second]
    ended = [await stage.end(first), await stage.end(second)]
    asking = await stage.start("asking")
    return [*ended, await stage.end(asking), await stage.end(await stage.start("stamped"))]


def drawn(wf: Workflows) -> None:
    family(wf)
    for program in programs(DRAWN):
        program.register(wf)


async def tell_drawn(stage: Stage) -> list[Json]:
    runs = [await stage.start(program.name, {"n": 1}) for program in programs(DRAWN)]
    return [await stage.end(run) for run in runs]


STORIES = {
    "drawn": Told(drawn, tell_drawn),
    "late": Told(late, tell_late),
    "steps": Told(steps, each("loop", "stubborn", "backoff", "gathered")),
    "attempts of the function": Told(steps, each("outside", "lost", "uncaught", "checkpointed")),
    "waits": Told(waits, tell_waits),
    "families": Told(families, tell_families),
    "senders": Told(senders, tell_senders),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=list(STORIES))
async def test_the_kit_and_the_engine_leave_the_same_runs(rest: Rest, story: Told) -> None:
    served: list[Workflows] = []

    def register(wf: Workflows, _: Bodies) -> None:
        story.register(wf)
        served.append(wf)

    async with serving(rest, register):
        real = await story.tell(RealStage(rest))
        for run in real:
            if not run["attempts"]:  # what failed outside a step did so by what is no part of the history
                replay(served[0], run)
    workflows = Workflows()
    story.register(workflows)
    try:
        told = await story.tell(KitStage(workflows))
    finally:
        workflows.close()
    assert [timeline(run) for run in told] == [timeline(run) for run in real]
