"""Crashes at every point of a scenario, one after the other: what comes of it must stay the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..known_options import known_options
from .engine import App, TestEngine
from .script import Fault
from .stored import StoredStep, TestRun

Outcome = Mapping[str, Any]


class CrashError(AssertionError):
    """A crash has changed what comes of a scenario, or has executed a step again that had its result."""


def outcome(run: TestRun[Any]) -> Outcome:
    """What came of a run: its status, output and error, and of each step id, status and output."""
    return {
        "workflow": run.workflow,
        "status": run.status,
        "output": run.output,
        "error": None if run.error is None else (run.error["name"], run.error["message"]),
        "steps": [(step.id, step.status, _timeless(step)) for step in run.steps.values()],
    }


def _timeless(step: StoredStep) -> Any:
    """The output of a step; of an event that it has waited for, without the time."""
    if step.kind == "wait_for_event" and step.output is not None:
        return {**step.output, "ts": None}
    return step.output


@known_options()
def every_crash(
    app: App,
    scenario: Callable[[TestEngine], object],
    *,
    same: Callable[[TestRun[Any]], Any] = outcome,
    faults: Sequence[Fault] = (),
    stubs: Mapping[str, Any] | None = None,
    strict: bool = True,
) -> int:
    """Plays a scenario without a crash, and then with one after each op: once where its answer is lost, so that the
    step is executed again, and once where it has been stored. Whatever runs then still goes on to its end. Answers how
    many times it was played with a crash.

    `same` gives what must be equal of each run, whatever crashed: without times, which differ by the backoff of the
    attempt that was lost. A workflow with `retries=0` has no such attempt, and fails. Where `app` makes a registry
    (a function), the process that comes after the crash has a new one. Raises CrashError, naming the op, and as
    TestEngine, unless it is not `strict`, UnusedError for what was set up and came to nothing without a crash.
    """

    def play(lost: Sequence[int] = (), stored: Sequence[int] = ()) -> TestEngine:
        is_clean = not (lost or stored)
        engine = TestEngine(
            app,
            faults=faults,
            stubs=stubs,
            crash_after=lost,
            stored_crash_after=stored,
            strict=strict and is_clean,
        )
        scenario(engine)
        engine.finish_all()
        return engine

    clean = play()
    expected = [same(run) for run in clean.runs]
    for number in range(1, clean.ops + 1):
        for where, engine in (("lost", play(lost=[number])), ("stored", play(stored=[number]))):
            place = f"with a crash after op {number}, its answer {where}"
            found = [same(run) for run in engine.runs]
            if found != expected:
                raise CrashError(
                    f"{place}, {_difference(expected, found, clean.runs)}\n\nwith the crash:\n{_told(engine)}\n\n"
                    f"without:\n{_told(clean)}"
                )
            for run in engine.runs:
                _check_executions(run, place)
    return 2 * clean.ops


def _check_executions(run: TestRun[Any], place: str) -> None:
    for step, times in run.executed.items():
        stored = len(run.steps[step].attempts) if step in run.steps else 0
        if times != stored + run.lost[step]:
            raise CrashError(
                f"{place}, step {step!r} was executed {times} times: {stored} of its attempts are stored, and"
                f" {run.lost[step]} were lost"
            )


def _difference(expected: Sequence[Any], found: Sequence[Any], runs: Sequence[TestRun[Any]]) -> str:
    """The first one."""
    for number, (before, now) in enumerate(zip(expected, found, strict=False), 1):
        if before != now:
            return f"run {number} ({runs[number - 1].workflow}) is another: {_differs(before, now)}"
    return f"there are {len(found)} runs, without it {len(expected)}"


def _differs(before: Any, now: Any, name: str = "") -> str:
    """Where two values differ, as deep inside as both have a place for it."""
    prefix = f"{name} " if name else ""
    if isinstance(before, Mapping) and isinstance(now, Mapping) and before.keys() == now.keys():
        key = next(key for key in before if before[key] != now[key])
        return _differs(before[key], now[key], f"{prefix}{key}")
    if isinstance(before, list | tuple) and isinstance(now, list | tuple) and len(before) == len(now):
        place = next(place for place in range(len(before)) if before[place] != now[place])
        return _differs(before[place], now[place], f"{name}[{place}]")
    return f"{prefix}is {now!r:.500}, without it {before!r:.500}"


def _told(engine: TestEngine) -> str:
    return "\n".join(f"{run.workflow}: {run.status}, {run.output!r}\n{run.timeline}" for run in engine.runs)
