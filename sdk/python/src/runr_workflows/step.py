"""The `step` argument of a sync workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, TypeVar, cast, overload

from .calls import (
    StepCall,
    invoke_call,
    max_attempts_of,
    run_call,
    send_call,
    sleep_call,
    sleep_until_call,
    wait_call,
)
from .drive import drive
from .errors import Duration, NonRetriableError, StepArgumentError
from .event import Data, Event, OutgoingEvent
from .known_options import known_options
from .replay import Body, Replay

if TYPE_CHECKING:
    from .workflow_function import WorkflowFunction

P = ParamSpec("P")
T = TypeVar("T")
_known = known_options(error=StepArgumentError)


class StepRunner:
    """Executes functions as steps; what `step.options(…)` returns."""

    def __init__(self, replay: Replay, max_attempts: int | None = None) -> None:
        self._replay = replay
        self._max_attempts = max_attempts

    def run(self, id: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Executes `fn(*args, **kwargs)` once and returns its result, through JSON, on this and every later invocation.

        A failure is retried with backoff; once the attempts are used up, StepError is raised here. `fn` is executed at
        least once: make its effects idempotent, for example with the run id and the step id as a key.
        """
        return cast(T, self._perform(run_call(id, fn, args, kwargs, self._max_attempts)))

    def _perform(self, call: StepCall) -> Any:
        return drive(self._replay.perform(call, self._replay.begin(call)), _execute)


class Step(StepRunner):
    """The steps of a sync workflow (engine section 2). Each id is a stable name within the workflow."""

    @_known
    def options(self, *, retries: int) -> StepRunner:
        """Options of one `run`: `step.options(retries=0).run(id, fn, …)` makes retries + 1 attempts."""
        return StepRunner(self._replay, max_attempts_of(retries))

    @_known
    def sleep(self, id: str, duration: Duration) -> None:
        """Sleeps without holding anything; zero goes on at once."""
        self._perform(sleep_call(id, duration))

    @_known
    def sleep_until(self, id: str, when: datetime | str) -> None:
        """Sleeps until a time; one without a timezone is UTC, one in the past goes on at once."""
        self._perform(sleep_until_call(id, when))

    @_known
    def wait_for_event(
        self,
        id: str,
        event: str,
        *,
        match: str | None = None,
        if_: str | None = None,
        timeout: Duration | None = None,
        lookback: Duration | Literal["run"] | None = None,
    ) -> Event[Data] | None:
        """The next event of that name for which `match` and `if_` hold, or None at the timeout (7 days by default).

        `match="data.order_id"` means that trigger event and incoming event agree there. Only events that arrive after
        the wait began count, unless `lookback` says how far back to look (a duration, or "run").
        """
        found: Event[Data] | None = self._perform(wait_call(id, event, match, if_, timeout, lookback))
        return found

    @overload
    def invoke(
        self,
        id: str,
        workflow: WorkflowFunction[T],
        *,
        data: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> T: ...

    @overload
    def invoke(
        self, id: str, workflow: str, *, data: Mapping[str, Any] | None = None, timeout: Duration | None = None
    ) -> Any: ...

    @_known
    def invoke(
        self,
        id: str,
        workflow: str | Callable[..., Any],
        *,
        data: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Starts a child run of a workflow (its function or name) and returns its output; raises InvokeError.

        Type checkers know the output of a function.
        """
        return self._perform(invoke_call(id, workflow, data, timeout))

    @_known
    def send_event(self, id: str, event: OutgoingEvent | Sequence[OutgoingEvent]) -> dict[str, list[str]]:
        """Sends one event or a list of up to 100, once; returns their ids as `{"ids": […]}`."""
        return cast(dict[str, list[str]], self._perform(send_call(id, event)))


def _execute(body: Body) -> Any:
    value = body()
    if hasattr(value, "__await__"):
        _refuse_awaitable(value)
    return value


def _refuse_awaitable(value: object) -> NoReturn:
    close = getattr(value, "close", None)
    if callable(close):
        close()
    raise NonRetriableError(
        f"the step's function returned {type(value).__name__}, which must be awaited: make the workflow `async def`"
    )
