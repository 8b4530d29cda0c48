"""`TestEngine`: runs workflows in memory and in virtual time, by the rules of the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, TypeVar, Unpack, overload

from ..calls import workflow_name
from ..drive import drive, drive_async
from ..duration import parse_duration, time_field
from ..endpoint import Answer
from ..errors import Duration
from ..event import Event
from ..event_names import sender_fault
from ..known_options import known_options
from ..workflow_function import WorkflowFunction
from ..workflows import Workflows
from .answers import Answers, Stub
from .declared import declared
from .events import Events, Sent
from .invoking import InMemoryEndpoint, ops_of, request_text
from .options import SendOptions, StartOptions
from .script import Fault, Script
from .stored import StoredStep, TestRun, moment
from .timers import Action, Timers
from .unused import check_all, check_own_faults
from .world import World

BEGINS = datetime(2026, 1, 1, tzinfo=UTC)
MOST_INVOCATIONS = 100_000
_FOREVER = 1 << 62
_CRASHED = {"name": "FunctionUnreachable", "message": "the process died before it answered, as the test says"}

Flow = Generator[str, Answer, None]
"""Yields requests to the function, and is sent its answers."""
App = Workflows | Callable[[], Workflows]
Data = Mapping[str, Any] | None
T = TypeVar("T")


class TestEngine:
    """An engine for tests: nothing waits, no network, no database.

    `app` is a registry, or a function that makes one: it is called again for the process that comes after a crash.
    `faults` (see `fails` and `returns`) hold for every run. `stubs` stand for invoked workflows, by name: an output,
    or a function of the data that returns it or raises. `crash_after` are ops, counted from 1 over all runs: the
    process dies when it has made that op, and the answer is lost; those of `stored_crash_after` have been stored
    before it dies. `begins` is the virtual time at the start.

    A fault that has hit nothing when its run has ended raises UnusedError, as do, once no run is active any more, those
    that hold for every run and events that wait for a step (`when_waiting`); not with `strict=False`.

    Every method that executes workflow code has a twin that is awaited: `run_async`, `send_async` and so on.
    """

    __test__ = False

    @known_options()
    def __init__(
        self,
        app: App,
        *,
        faults: Sequence[Fault] = (),
        stubs: Mapping[str, Any] | None = None,
        crash_after: int | Sequence[int] = (),
        stored_crash_after: int | Sequence[int] = (),
        begins: datetime = BEGINS,
        strict: bool = True,
    ) -> None:
        self._make = app if not isinstance(app, Workflows) else lambda: app
        self._timers = Timers(round(begins.timestamp() * 1000))
        self._lost = _numbers(crash_after)
        self._stored = _numbers(stored_crash_after)
        self._ops = 0
        self._invocations = 0
        self._strict = strict
        self._checked = 0
        self._own_scripts: list[tuple[TestRun[Any], Script]] = []
        self._keys = count()
        self._scripted: dict[str, list[Action]] = {}
        registry = self._boot()
        workflows = {name: declared(found) for found in registry.definitions if (name := found["name"])}
        self._world = World(workflows, self._timers, Script(faults))
        self._events = Events(self._world)
        self._world.ended = self._events.run_ended
        self._answers = Answers(self._world, self._events, _stubs(stubs or {}), self._waits)

    @property
    def now(self) -> datetime:
        """Virtual time, UTC."""
        return moment(self._timers.now_ms)

    @property
    def runs(self) -> list[TestRun[Any]]:
        """All runs so far, in the order of their start."""
        return list(self._world.runs)

    @property
    def ops(self) -> int:
        """How many ops the function has answered, over all runs: what `crash_after` counts."""
        return self._ops

    @property
    def unsent(self) -> list[str]:
        """Ids of steps that `send(…, when_waiting=…)` was told of and that no run has waited in."""
        return [step for step, sends in self._scripted.items() if sends]

    @overload
    def run(self, workflow: WorkflowFunction[T], data: Data = None, **options: Unpack[StartOptions]) -> TestRun[T]: ...
    @overload
    def run(self, workflow: str, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]: ...
    @known_options(StartOptions)
    def run(self, workflow: Any, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]:
        """Starts a run of a workflow, by its function or name, and lets time pass until it has ended."""
        run = self._started(workflow, data, **options)
        drive(self._until(_FOREVER, run), self._perform)
        return run

    @overload
    async def run_async(
        self, workflow: WorkflowFunction[T], data: Data = None, **options: Unpack[StartOptions]
    ) -> TestRun[T]: ...
    @overload
    async def run_async(self, workflow: str, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]: ...
    @known_options(StartOptions)
    async def run_async(self, workflow: Any, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]:
        """As `run`, with the workflow on the running loop."""
        run = self._started(workflow, data, **options)
        await drive_async(self._until(_FOREVER, run), self._perform_async)
        return run

    @overload
    def start(
        self, workflow: WorkflowFunction[T], data: Data = None, **options: Unpack[StartOptions]
    ) -> TestRun[T]: ...
    @overload
    def start(self, workflow: str, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]: ...
    @known_options(StartOptions)
    def start(self, workflow: Any, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]:
        """Starts a run, and executes what it comes to before time has to pass."""
        run = self._started(workflow, data, **options)
        self._settle()
        return run

    @overload
    async def start_async(
        self, workflow: WorkflowFunction[T], data: Data = None, **options: Unpack[StartOptions]
    ) -> TestRun[T]: ...
    @overload
    async def start_async(self, workflow: str, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]: ...
    @known_options(StartOptions)
    async def start_async(self, workflow: Any, data: Data = None, **options: Unpack[StartOptions]) -> TestRun[Any]:
        """As `start`, with the workflow on the running loop."""
        run = self._started(workflow, data, **options)
        await self._settle_async()
        return run

    @overload
    def send(self, name: str, data: Data = None, *, id: str | None = None) -> Sent: ...
    @overload
    def send(self, name: str, data: Data = None, **options: Unpack[SendOptions]) -> Sent | None: ...
    @known_options(SendOptions)
    def send(self, name: str, data: Data = None, **options: Unpack[SendOptions]) -> Sent | None:
        """Sends an event: what it came to, once its runs have gone on. None for one that is sent later."""
        sent = self._sent(name, data, **options)
        self._settle()
        return sent

    @overload
    async def send_async(self, name: str, data: Data = None, *, id: str | None = None) -> Sent: ...
    @overload
    async def send_async(self, name: str, data: Data = None, **options: Unpack[SendOptions]) -> Sent | None: ...
    @known_options(SendOptions)
    async def send_async(self, name: str, data: Data = None, **options: Unpack[SendOptions]) -> Sent | None:
        """As `send`, with the workflows on the running loop."""
        sent = self._sent(name, data, **options)
        await self._settle_async()
        return sent

    def advance(self, duration: Duration) -> None:
        """Lets time pass, and executes what is due meanwhile."""
        drive(self._until(self._timers.now_ms + parse_duration(duration)), self._perform)

    async def advance_async(self, duration: Duration) -> None:
        """As `advance`, with the workflows on the running loop."""
        await drive_async(self._until(self._timers.now_ms + parse_duration(duration)), self._perform_async)

    def finish(self, run: TestRun[T]) -> TestRun[T]:
        """Lets time pass until the run has ended."""
        drive(self._until(_FOREVER, run), self._perform)
        return run

    async def finish_async(self, run: TestRun[T]) -> TestRun[T]:
        """As `finish`, with the workflows on the running loop."""
        await drive_async(self._until(_FOREVER, run), self._perform_async)
        return run

    def finish_all(self) -> None:
        """Lets time pass until every run has ended, those that they start too."""
        for run in self._world.runs:  # also those that are appended meanwhile
            self.finish(run)

    def cancel(self, run: TestRun[Any]) -> None:
        """Cancels an active run, and its active children. Raises ValueError for one that has ended."""
        if run.ended:
            raise ValueError(f"the run has ended already: {run.status}")
        self._world.end(run, "cancelled")
        self._settle()

    def _started(
        self,
        workflow: WorkflowFunction[Any] | str,
        data: Data = None,
        *,
        event: tuple[str, Mapping[str, Any]] | None = None,
        idempotency_key: str | None = None,
        delay: Duration | None = None,
        at: datetime | str | None = None,
        faults: Sequence[Fault] = (),
    ) -> TestRun[Any]:
        called = workflow_name(workflow)
        if called not in self._world.workflows:
            known = ", ".join(self._world.workflows) or "none"
            raise LookupError(f"the workflow {called!r} is not registered; there is {known}")
        if event is not None and data is not None:
            raise ValueError("data and event exclude each other: the event has its own data")
        name, given = event or ("runr/api.start", data)
        made = self._events.make(name, given, seed=f"test {next(self._keys)}")
        script = Script(faults)
        run, _ = self._world.start(
            called,
            made,
            _source(name),
            due_ms=self._when(delay, at),
            idempotency_key=idempotency_key,
            script=script,
        )
        self._own_scripts.append((run, script))
        return run

    def _sent(
        self,
        name: str,
        data: Data = None,
        *,
        id: str | None = None,
        after: Duration | None = None,
        at: datetime | str | None = None,
        when_waiting: str | None = None,
    ) -> Sent | None:
        fault = sender_fault(name)
        if fault is not None:
            raise ValueError(f"{name!r}: {fault}")
        if (after is not None) + (at is not None) + (when_waiting is not None) > 1:
            raise ValueError("after, at and when_waiting exclude each other: give one of them")
        seed = f"test {next(self._keys)}"

        def accept() -> Sent:
            return self._events.accept(self._event(name, data, seed), None if id is None else f"u:{id}")

        if when_waiting is not None:
            self._when_waiting(when_waiting, accept)
            return None
        due_ms = self._when(after, at)
        if due_ms is None:
            return accept()
        self._timers.at(due_ms, accept)
        return None

    def _event(self, name: str, data: Data, seed: str) -> Event:
        return self._events.make(name, data, seed=seed)

    def _when(self, delay: Duration | None, at: datetime | str | None) -> int | None:
        if delay is not None and at is not None:
            raise ValueError("a duration and a time exclude each other: give one of them")
        if at is not None:
            return round(datetime.fromisoformat(time_field(at, "at")).timestamp() * 1000)
        return None if delay is None else self._timers.now_ms + parse_duration(delay)

    def _when_waiting(self, step: str, send: Action) -> None:
        waits = (run._open_step for run in self._world.runs)
        if any(found is not None and found.id == step and found.kind == "wait_for_event" for found in waits):
            send()
        else:
            self._scripted.setdefault(step, []).append(send)

    def _waits(self, run: TestRun[Any], step: StoredStep) -> None:
        sends = self._scripted.get(step.id)
        if sends:
            self._timers.at(self._timers.now_ms, sends.pop(0))

    def _settle(self) -> None:
        drive(self._until(self._timers.now_ms), self._perform)

    async def _settle_async(self) -> None:
        await drive_async(self._until(self._timers.now_ms), self._perform_async)

    def _until(self, ms: int, run: TestRun[Any] | None = None) -> Flow:
        """Executes what is due until then; no longer than until this run has ended."""
        yield from self._execute()
        while run is None or not run.ended:
            action = self._timers.next(ms)
            if action is None:
                break
            action()
            yield from self._execute()
        if ms < _FOREVER:
            self._timers.now_ms = max(self._timers.now_ms, ms)
        self._check_used()

    def _check_used(self) -> None:
        if not self._strict:
            return
        over = [each for each in self._own_scripts if each[0].ended]
        self._own_scripts = [each for each in self._own_scripts if not each[0].ended]
        check_own_faults(over)
        ended = sum(run.ended for run in self._world.runs)
        if ended > self._checked:
            self._checked = ended
            check_all(self._world, self.unsent)

    def _execute(self) -> Flow:
        while self._world.ready:
            run = self._world.ready.popleft()
            self._invocations += 1
            if self._invocations > MOST_INVOCATIONS:
                raise RuntimeError(f"{MOST_INVOCATIONS} invocations, and no end: {run.timeline[-1]}")
            yield from self._invoke(run)

    def _invoke(self, run: TestRun[Any]) -> Flow:
        run.status = "running"
        run._started_ms = self._timers.now_ms if run._started_ms is None else run._started_ms
        before = run.executed.copy()
        answer = yield request_text(run, ts=self._timers.now_ms // 1000, max_ops=self._room(run))
        try:
            ops = ops_of(answer)
        except LookupError as error:
            fault = {"name": "FunctionHttpError", "message": str(error)}
            self._answers.function_failed(run, fault)
            return
        made = range(self._ops + 1, self._ops + len(ops) + 1)
        self._ops += len(ops)
        if self._lost.intersection(made):
            run.lost += run.executed - before
            self._boot()
            self._answers.function_failed(run, _CRASHED, told="crash")
            return
        self._answers.apply(run, ops)
        if self._stored.intersection(made):
            self._boot()

    def _room(self, run: TestRun[Any]) -> int | None:
        """`max_ops` of the next request; after a failed attempt of the function, steps go one by one for a while."""
        most = self._world.workflows[run.workflow].max_ops
        if most is None:
            return None
        if run._failures > 0:
            run._one_by_one_until = run._memoized + most
        return None if run._memoized < run._one_by_one_until else most

    def _boot(self) -> Workflows:
        """The process of the function, new."""
        registry = self._make()
        self._endpoint = registry.endpoint(InMemoryEndpoint)
        self._endpoint.find = self._find
        return registry

    def _find(self, id: str) -> TestRun[Any] | None:
        return next((run for run in self._world.runs if run.id == id), None)

    def _perform(self, request: str) -> Answer:
        return self._endpoint.answer(request)

    async def _perform_async(self, request: str) -> Answer:
        return await self._endpoint.answer_async(request)


def _source(event: str) -> str:
    """`run.source` of a run that an event of this name starts."""
    known = {"runr/api.start": "api", "runr/cron": "cron", "runr/invoke": "invoke"}
    return known.get(event) or ("queue" if event.startswith("queue/") else "event")


def _numbers(given: int | Sequence[int]) -> frozenset[int]:
    return frozenset((given,) if isinstance(given, int) else given)


def _stubs(given: Mapping[str, Any]) -> dict[str, Stub]:
    return {name: value if callable(value) else partial(_constant, value) for name, value in given.items()}


def _constant(value: Any, _data: dict[str, Any]) -> Any:
    return value
