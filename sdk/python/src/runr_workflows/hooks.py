"""The middleware of a registry, called in its order. A call is a flow: only async hooks are yielded to its driver."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from .context import Context
from .drive import drive, drive_async
from .errors import MiddlewareError, NonRetriableError, RetryAfterError
from .failures import failure_of
from .interrupt import StepInterrupt
from .middleware import HOOKS, InvocationOutcome, Middleware, StepInfo, StepOutcome, Where
from .replay import report_of_return

Hook = Callable[..., Any]
Flow = Generator[partial[Any], Any, Any]

_log = logging.getLogger("runr_workflows")


_LATE_DECODE = (
    "{} is async, which decode cannot be for workflows: code that runs side by side would go on in another order at"
    " every call. Get what it needs before, for example keys when the process starts"
)


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

    def check_decode(self) -> None:
        """Raises TypeError for a `decode` that is async."""
        late = next((hook for hook in self._decode if _is_async(hook)), None)
        if late is not None:
            raise TypeError(_LATE_DECODE.format(_name(late)))

    def step_starts(self, step: StepInfo) -> Flow:
        """Before the function of a step is executed. Raises MiddlewareError."""
        return _all(self._step_starts, step)

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> Flow:
        """After it."""
        return _all_logged(self._step_ends, step, outcome)

    def encode(self, value: Any, where: Where) -> Flow:
        """What is stored in place of a value. Raises MiddlewareError."""
        return _through(self._encode, value, where)

    def decode(self, value: Any, where: Where) -> Flow:
        """The value in place of which this was stored. Raises MiddlewareError."""
        return _through(self._decode, value, where)

    async def decoded(self, value: Any, where: Where) -> Any:
        """As `decode`, on a loop."""
        return await drive_async(self.decode(value, where), _await)

    def around(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        """A workflow function with the hooks of invocations around it."""

        @functools.wraps(fn)
        def hooked(ctx: Context, step: Any) -> Any:
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

        @functools.wraps(fn)
        async def hooked_async(ctx: Context, step: Any) -> Any:
            outcome: InvocationOutcome | None = None
            try:
                await drive_async(self._before(ctx), _await)
                value = await drive_async(self.encode(await fn(ctx, step), "run"), _await)
                outcome = _returned(value)
            except BaseException as error:
                outcome = _raised(error, ctx)
                raise
            finally:
                await drive_async(self._after(ctx, outcome), _await)
            return value

        return hooked_async if is_async else hooked

    def _before(self, ctx: Context) -> Flow:
        ctx.introduce()
        ctx.event = {**ctx.event, "data": (yield from self.decode(ctx.event["data"], "event"))}
        yield from _all(self._starts, ctx)

    def _after(self, ctx: Context, outcome: InvocationOutcome | None) -> Flow:
        if outcome is not None:
            yield from _all_logged(self._ends, ctx, outcome)


def _returned(value: object) -> InvocationOutcome:
    failure = report_of_return(value).failure
    return InvocationOutcome("completed") if failure is None else _failed(failure.name, failure.message)


def _raised(error: BaseException, ctx: Context) -> InvocationOutcome | None:
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
    return inspect.iscoroutinefunction(hook)


def _all(hooks: Iterable[Hook], *args: Any) -> Flow:
    for hook in hooks:
        yield from _one(hook, *args)


def _all_logged(hooks: Iterable[Hook], *args: Any) -> Flow:
    for hook in hooks:
        try:
            yield from _one(hook, *args)
        except Exception:
            _log.exception("%s failed: the result stands", _name(hook))


def _through(hooks: Iterable[Hook], value: Any, where: Where) -> Flow:
    for hook in hooks:
        value = yield from _one(hook, value, where)
    return value


def _one(hook: Hook, *args: Any) -> Flow:
    try:
        if _is_async(hook):
            return (yield partial(hook, *args))
        return hook(*args)
    except (NonRetriableError, RetryAfterError):
        raise
    except Exception as error:
        raise MiddlewareError(_name(hook), error) from error


def _call(todo: partial[Any]) -> Any:
    return todo()


async def _await(todo: partial[Any]) -> Any:
    return await todo()
