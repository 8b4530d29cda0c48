"""The `step` argument of an async workflow: the same calls, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, overload

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
from .errors import Duration, StepArgumentError, StepNotAwaitedError
from .event import Data, Event, OutgoingEvent
from .failures import leaves_of, takes_call_for_result, text_of
from .known_options import known_options

if TYPE_CHECKING:
    from .workflow_function import WorkflowFunction

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_known = known_options(error=StepArgumentError)

_MOST_LISTED = 100
_HOLD_NO_CALL = frozenset({str, int, float, bool, bytes, dict, type(None)})
"""Types of arguments that are looked into no further, the most frequent ones."""


class StepScope(Protocol):
    """The invocation that async step calls belong to."""

    def begin(self, call: StepCall) -> str:
        """The step id of a call that is made now."""

    def perform(self, call: StepCall, step_id: str) -> Coroutine[Any, Any, Any]:
        """The result of a call that is awaited now."""

    def known(self, call: StepCall, step_id: str) -> Generator[Any, Any, Any] | None:
        """The same where it is known already, so that nothing is to be waited for; else None."""


class PendingStep(Coroutine[Any, Any, T_co]):
    """A step call that has its id but has not begun.

    A coroutine in all that matters (await it, gather it, make a task of it), except that one which is never awaited,
    because an earlier step ended the invocation, is no reason for a warning.
    """

    __slots__ = ("__weakref__", "_call", "_inner", "_scope", "_step_id")

    def __init__(self, scope: StepScope, call: StepCall) -> None:
        self._scope = scope
        self._call = call
        self._step_id = scope.begin(call)
        self._inner: Coroutine[Any, Any, T_co] | None = None

    @property
    def name(self) -> str:
        """The id of the step; the one that was asked for, where the invocation had ended before."""
        return self._step_id or self._call.user_id

    def __repr__(self) -> str:
        return f"<PendingStep {self.name!r}>"

    def __str__(self) -> str:
        raise StepNotAwaitedError([self.name], "its call has no text, await it to have its result")

    def _started(self) -> Coroutine[Any, Any, T_co]:
        if self._inner is None:
            self._inner = self._scope.perform(self._call, self._step_id)
        return self._inner

    def __await__(self) -> Generator[Any, Any, T_co]:
        if self._inner is None:
            known = self._scope.known(self._call, self._step_id)
            if known is not None:
                self._inner = _SPENT
                return known
        return self._started().__await__()

    def send(self, value: Any) -> Any:
        """Part of the coroutine protocol."""
        return self._started().send(value)

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None, /) -> Any:
        """Part of the coroutine protocol."""
        try:
            return self._started().throw(typ if val is None else val)
        finally:
            del typ, val  # else the error, whose traceback has this frame, would keep itself

    def close(self) -> None:
        """Part of the coroutine protocol."""
        if self._inner is not None:
            self._inner.close()


async def _nothing() -> Any:
    """Ends at once."""


def _spent() -> Coroutine[Any, Any, Any]:
    """A coroutine that has ended: awaited, it says so."""
    coroutine = _nothing()
    with suppress(StopIteration):
        coroutine.send(None)
    return coroutine


_SPENT = _spent()


def in_view_of(not_awaited: Iterable[str], error: BaseException | None) -> BaseException | None:
    """What a workflow function has failed with that never awaited some step calls, if it has."""
    step_ids = list(not_awaited)
    if not step_ids:
        return error
    if error is None:
        return StepNotAwaitedError(step_ids)
    mistaken = next((leaf for leaf in leaves_of(error) if takes_call_for_result(leaf)), None)
    if mistaken is None:
        return error
    told = StepNotAwaitedError(
        step_ids, f"its call was taken for its result ({type(mistaken).__name__}: {text_of(mistaken)})"
    )
    told.__cause__ = error
    return told


def _refuse_not_awaited(user_id: str, argument: object) -> None:
    """A step that begins in the body of another one would wait for itself."""
    call = _pending_in(argument)
    if call is not None:
        raise StepArgumentError(
            f"step {call.name!r} was not awaited: await it before its result is given to step {user_id!r:.100}"
        )


def _pending_in(argument: object) -> PendingStep[Any] | None:
    """A step call that an argument is, or waits for, or that is among the first of a list."""
    if type(argument) is PendingStep:  # asking with isinstance is slow of an abstract class
        return argument
    held: Iterable[object] = ()
    if isinstance(argument, list | tuple):
        held = argument[:_MOST_LISTED]
    elif isinstance(argument, asyncio.Future) and not argument.done():
        # What asyncio.gather waits for is known to nobody else.
        held = (argument.get_coro(),) if isinstance(argument, asyncio.Task) else getattr(argument, "_children", ())
    return next((call for each in held if (call := _pending_in(each)) is not None), None)


StepCoroutine = Coroutine[object, object, T]
"""What a step call returns. Not of Any, with which type checkers do not see through `asyncio.gather`."""


class AsyncStepRunner:
    """Executes functions as steps; what `step.options(…)` returns."""

    def __init__(self, scope: StepScope, max_attempts: int | None = None) -> None:
        self._scope = scope
        self._max_attempts = max_attempts

    @overload
    def run(self, id: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> StepCoroutine[T]: ...

    @overload
    def run(self, id: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> StepCoroutine[T]: ...

    def run(self, id: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> StepCoroutine[Any]:
        """As `Step.run`. An async `fn` is awaited on the loop; any other is executed in a thread."""
        for arguments in (args, kwargs.values()) if kwargs else (args,):
            for argument in arguments:
                if type(argument) not in _HOLD_NO_CALL:
                    _refuse_not_awaited(id, argument)
        return PendingStep(self._scope, run_call(id, fn, args, kwargs, self._max_attempts))


class AsyncStep(AsyncStepRunner):
    """The steps of an async workflow. Gathered step calls run in call order, over `wf.connect()` side by side."""

    @_known
    def options(self, *, retries: int) -> AsyncStepRunner:
        """As `Step.options`."""
        return AsyncStepRunner(self._scope, max_attempts_of(retries))

    @_known
    def sleep(self, id: str, duration: Duration) -> StepCoroutine[None]:
        """As `Step.sleep`."""
        return PendingStep(self._scope, sleep_call(id, duration))

    @_known
    def sleep_until(self, id: str, when: datetime | str) -> StepCoroutine[None]:
        """As `Step.sleep_until`."""
        return PendingStep(self._scope, sleep_until_call(id, when))

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
    ) -> StepCoroutine[Event[Data] | None]:
        """As `Step.wait_for_event`."""
        return PendingStep(self._scope, wait_call(id, event, match, if_, timeout, lookback))

    @overload
    def invoke(
        self,
        id: str,
        workflow: WorkflowFunction[T],
        *,
        data: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> StepCoroutine[T]: ...

    @overload
    def invoke(
        self, id: str, workflow: str, *, data: Mapping[str, Any] | None = None, timeout: Duration | None = None
    ) -> StepCoroutine[Any]: ...

    @_known
    def invoke(
        self,
        id: str,
        workflow: str | Callable[..., Any],
        *,
        data: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> StepCoroutine[Any]:
        """As `Step.invoke`."""
        return PendingStep(self._scope, invoke_call(id, workflow, data, timeout))

    @_known
    def send_event(
        self, id: str, event: OutgoingEvent | Sequence[OutgoingEvent]
    ) -> StepCoroutine[dict[str, list[str]]]:
        """As `Step.send_event`."""
        return PendingStep(self._scope, send_call(id, event))
