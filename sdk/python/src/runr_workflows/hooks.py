"""The middleware of a registry, called in its order. A call is a flow: what a hook returns that is to be awaited is
yielded to its driver.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from .context import Context
from .drive import drive, drive_async
from .errors import MiddlewareError, NonRetriableError, RetryAfterError
from .failures import failure_of
from .interrupt import StepInterrupt
from .kept import keep
from .middleware import HOOKS, InvocationOutcome, Middleware, StepInfo, StepOutcome, Where
from .replay import report_of_return

Hook = Callable[..., Any]
Flow = Generator[partial[Any], Any, Any]

_log = logging.getLogger("runr_workflows")

_LATE_DECODE = (
    "{} is async, which decode cannot be for workflows: code that runs side by side would go on in another order at"
    " every call. Get what it needs before, for example keys when the process starts"
)

_CANNOT_WAIT = (
    "it has returned what is to be awaited ({}), which is done for async workflows alone, and for decode not even there"
)

_FAULTS = (Exception, SystemExit, asyncio.CancelledError)
"""What a hook may raise. A cancellation of the task that drives is not among them: that closes the flow."""


class Hooks:
    """What the middleware of a registry does. Raises TypeError for an object that has no hook."""

    def __init__(self, middleware: Sequence[object]) -> None:
        for each in middleware:
            if not any(_hook(each, name) for name in HOOKS):
                raise TypeError(f"{each!r:.100} is no middleware: it has none of {', '.join(HOOKS)}")
        found = {name: [hook for each in middleware if (hook := _hook(each, name))] for name in HOOKS}
        self._starts, self._step_starts, self._encode = (
            found[name] for name in ("invocation_starts", "step_starts", "encode")
        )
        self._ends, self._step_ends, self._decode = (
            found[name][::-1] for name in ("invocation_ends", "step_ends", "decode")
        )
        self.asynchronous = [_name(hook) for hooks in found.values() for hook in hooks if _is_async(hook)]
        """Names of the hooks that are async."""
        self.encodes = bool(self._encode)
        self.decodes = bool(self._decode)
        self._waits = True
        self._decode_waits = True

    def blocking(self) -> Hooks:
        """The same for code that cannot await: there, a hook that returns what is to be awaited fails."""
        hooks = copy.copy(self)
        hooks._waits = hooks._decode_waits = False
        return hooks

    def for_workflows(self) -> Hooks:
        """The same where `decode` cannot be awaited. Raises TypeError for one that is async."""
        late = next((hook for hook in self._decode if _is_async(hook)), None)
        if late is not None:
            raise TypeError(_LATE_DECODE.format(_name(late)))
        hooks = copy.copy(self)
        hooks._decode_waits = False
        return hooks

    def step_starts(self, step: StepInfo) -> Flow:
        """Before the function of a step is executed. Raises MiddlewareError."""
        return self._all(self._step_starts, step)

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> Flow:
        """After it."""
        return self._all_logged(self._step_ends, step, outcome)

    def encode(self, value: Any, where: Where) -> Flow:
        """What is stored in place of a value. Raises MiddlewareError."""
        return self._through(self._encode, value, where, waits=self._waits)

    def decode(self, value: Any, where: Where) -> Flow:
        """The value in place of which this was stored. Raises MiddlewareError."""
        return self._through(self._decode, value, where, waits=self._decode_waits)

    async def decoded(self, value: Any, where: Where) -> Any:
        """As `decode`, on a loop."""
        return await drive_async(self.decode(value, where), _await)

    def around(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """A workflow function with the hooks of invocations around it."""

        return self._around_async(fn) if is_async else self.blocking()._around_sync(fn)

    def _around_sync(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def hooked(ctx: Context[Any], step: Any) -> Any:
            outcome: InvocationOutcome | None = None
            try:
                drive(self._before(ctx), _call)
                value = fn(ctx, step)
                if not inspect.iscoroutine(value):  # which is refused by the caller
                    value = drive(self.encode(value, "run"), _call)
                    outcome = _returned(value)
            except BaseException as error:
                outcome = _raised(error, ctx)
                raise
            finally:
                drive(self._after(ctx, outcome), _call)
            return value

        return hooked

    def _around_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def hooked(ctx: Context[Any], step: Any) -> Any:
            outcome: InvocationOutcome | None = None
            try:
                await drive_async(self._before(ctx), _await)
                value = await fn(ctx, step)
                # In a task of its own only where it waits: then user code may have left a cancellation behind.
                value = await drive_async(self.encode(value, "run"), lambda todo: keep(todo(), ctx.keeper()))
                outcome = _returned(value)
            except BaseException as error:
                outcome = _raised(error, ctx)
                raise
            finally:
                await self._after_async(ctx, outcome)
            return value

        return hooked

    async def _after_async(self, ctx: Context[Any], outcome: InvocationOutcome | None) -> None:
        """As `_after`, in the task of the workflow function, in whose context the hooks of the start were called."""
        try:
            await drive_async(self._after(ctx, outcome), _await)
        except asyncio.CancelledError:
            if not ctx.keeper().is_over:
                _log.warning("invocation_ends was cancelled: the result stands")

    def _before(self, ctx: Context[Any]) -> Flow:
        ctx.introduce()
        ctx.event = {**ctx.event, "data": (yield from self.decode(ctx.event["data"], "event"))}
        yield from self._all(self._starts, ctx)

    def _after(self, ctx: Context[Any], outcome: InvocationOutcome | None) -> Flow:
        if outcome is not None:
            yield from self._all_logged(self._ends, ctx, outcome)

    def _all(self, hooks: Iterable[Hook], *args: Any) -> Flow:
        for hook in hooks:
            yield from _one(hook, *args, waits=self._waits)

    def _all_logged(self, hooks: Iterable[Hook], *args: Any) -> Flow:
        for hook in hooks:
            try:
                yield from _one(hook, *args, waits=self._waits)
            except Exception:
                _log.exception("%s failed: the result stands", _name(hook))

    def _through(self, hooks: Iterable[Hook], value: Any, where: Where, *, waits: bool) -> Flow:
        for hook in hooks:
            value = yield from _one(hook, value, where, waits=waits)
        return value


def _returned(value: object) -> InvocationOutcome:
    failure = report_of_return(value).failure
    return InvocationOutcome("completed") if failure is None else _failed(failure.name, failure.message)


def _raised(error: BaseException, ctx: Context[Any]) -> InvocationOutcome | None:
    """What is told of the end of a workflow function that raised; None where nothing can be told any more."""
    if isinstance(error, GeneratorExit):
        return None
    if not isinstance(error, StepInterrupt | asyncio.CancelledError):
        described = failure_of(error).error
        return _failed(described["name"], described["message"])
    failure = ctx.failure  # left at a step, or failed by a step call
    if failure is None:
        return InvocationOutcome("continues")
    told = {"name": failure.name, "message": failure.message}
    return InvocationOutcome("continues" if failure.step_id else "failed", told)


def _failed(name: str, message: str) -> InvocationOutcome:
    return InvocationOutcome("failed", {"name": name, "message": message})


def _hook(middleware: object, name: str) -> Hook | None:
    """The method of a middleware; None for the one of the base class, which does nothing."""
    method = getattr(middleware, name, None)
    if not callable(method) or getattr(method, "__func__", None) is getattr(Middleware, name):
        return None
    found: Hook = method
    return found


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", repr(hook))


def _is_async(hook: Hook) -> bool:
    """Whether a hook can be told to be async before it is called."""
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)


def _one(hook: Hook, *args: Any, waits: bool) -> Flow:
    """Calls a hook. Raises MiddlewareError, or what says when to try again; nothing else."""
    try:
        done = hook(*args)
        if not inspect.isawaitable(done):
            return done
        if not waits:
            _discard(done)
            raise TypeError(_CANNOT_WAIT.format(type(done).__name__))
        return (yield partial(_result, done))
    except (NonRetriableError, RetryAfterError):
        raise
    except _FAULTS as error:
        raise MiddlewareError(_name(hook), error) from error


def _discard(awaitable: Any) -> None:
    """Nobody awaits it: a coroutine does not begin, and what has begun is cancelled."""
    end = getattr(awaitable, "close", None) or getattr(awaitable, "cancel", None)
    if callable(end):
        end()


async def _result(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _call(todo: partial[Any]) -> Any:
    return todo()


async def _await(todo: partial[Any]) -> Any:
    return await todo()
