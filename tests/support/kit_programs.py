"""Workflows that are drawn by a seed, for the test kit and the engine to execute alike."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from runr_workflows import AsyncStep, Context, NonRetriableError, RetryAfterError, Step, StepError, Workflows

SOON = "50ms"
_KINDS = ("run", "run", "flaky", "flaky", "final", "sleep", "wait", "send", "child", "broken", "missing", "outside")


class Program:
    """A list of leaves: kind, step id, a number from 0 to 3, and whether an error of it is caught."""

    def __init__(self, seed: int) -> None:
        luck = random.Random(seed)
        self.name = f"program-{seed}"
        self.is_async = luck.random() < 0.5
        self.options: dict[str, Any] = {"retries": luck.randint(0, 2)}
        if luck.random() < 0.4:
            self.options["checkpoint"] = {"max_steps": luck.choice([2, 3, 50])}
        self._leaves = [
            (luck.choice(_KINDS), luck.choice("abc"), luck.randint(0, 3), luck.random() < 0.8)
            for _ in range(luck.randint(1, 9))
        ]
        self._made: Counter[tuple[str, str]] = Counter()

    def register(self, wf: Workflows) -> None:
        """Defines it. Beside it the workflows `child` and `broken` are needed."""

        def program(ctx: Context, step: Step) -> list[Any]:
            done: list[Any] = []
            for place, leaf in enumerate(self._leaves):
                try:
                    done.append(self._call(ctx, step, str(place), leaf))
                except StepError as error:
                    if not leaf[3]:
                        raise
                    done.append(f"{error.step_id}: {error.name}: {error.message}")
            return done

        async def program_async(ctx: Context, step: AsyncStep) -> list[Any]:
            done: list[Any] = []
            for place, leaf in enumerate(self._leaves):
                try:
                    called = self._call(ctx, step, str(place), leaf)
                    done.append(await called if hasattr(called, "__await__") else called)
                except StepError as error:
                    if not leaf[3]:
                        raise
                    done.append(f"{error.step_id}: {error.name}: {error.message}")
            return done

        wf.workflow(self.name, **self.options)(program_async if self.is_async else program)

    def _call(self, ctx: Context, step: Any, place: str, leaf: tuple[str, str, int, bool]) -> Any:
        kind, id, number, is_caught = leaf
        match kind:
            case "run":
                return step.run(id, self._body, place, number)
            case "flaky":
                runner = step.options(retries=number) if is_caught else step
                return runner.run(id, lambda: self._flaky(ctx.run_id, place, number))
            case "final":
                return step.run(id, self._final, place)
            case "sleep":
                return step.sleep(id, f"{number * 20}ms")
            case "wait":
                return step.wait_for_event(id, "never", timeout=SOON)
            case "send":
                return step.send_event(id, [{"name": f"nobody.{n}", "data": {"n": n}} for n in range(number + 1)])
            case "outside":
                self._flaky(ctx.run_id, place, number)
                return place
        return step.invoke(id, kind, data={"n": number})

    def _body(self, place: str, number: int) -> str:
        return place * number

    def _flaky(self, run: str, place: str, times: int) -> str:
        self._made[run, place] += 1
        if self._made[run, place] <= times:
            raise RetryAfterError(f"{place} fails", SOON)
        return place

    def _final(self, place: str) -> None:
        raise NonRetriableError(f"{place} is final")


def programs(count: int) -> list[Program]:
    """The first programs."""
    return [Program(seed) for seed in range(count)]


def family(wf: Workflows) -> None:
    """What programs invoke."""

    @wf.workflow("child")
    def child(ctx: Context, step: Step) -> int:
        return step.run("add", int.__add__, ctx.event["data"]["n"], 1)

    @wf.workflow("broken", retries=0)
    def broken(ctx: Context, step: Step) -> None:
        raise ValueError(f"no {ctx.event['data']['n']}")
