"""What a test has steps do instead of their own bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ..replay import Body

Error = BaseException | type[BaseException]


@dataclass(frozen=True, slots=True)
class Fault:
    """What a step does in place of its body, for the first `times` attempts of a run; None: for all of them.

    Of several for one step, the next begins where the one before ends.
    """

    step: str
    body: Callable[..., Any]
    times: int | None


def fails(step: str, error: Error | None = None, *, times: int | None = 1) -> Fault:
    """The body of the step is not executed, and the attempt fails: the first `times` of a run, all with None.

    `step` is the step's id, with its counter where it has one (`"add:1"`). `error` is an exception or its class, such
    as `NonRetriableError("…")` or `RetryAfterError("…", "1h")`; a RuntimeError by default.
    """
    return Fault(
        step, partial(_raise, RuntimeError(f"{step} fails, as the test says") if error is None else error), times
    )


def returns(step: str, value: Any, *, times: int | None = None) -> Fault:
    """The body of the step is not executed, and the attempt completes with a value; if it is callable, with what it
    returns for the arguments of the step.
    """
    return Fault(step, value if callable(value) else lambda *_args, **_kwargs: value, times)


def scripted(faults: Sequence[Fault], step_id: str, attempts: int, body: Body) -> Body:
    """What is executed for an attempt of a step that has made so many before."""
    for fault in faults:
        if fault.step == step_id:
            if fault.times is None or attempts < fault.times:
                return partial(fault.body, *body.args, **body.keywords)
            attempts -= fault.times
    return body


def _raise(error: Error, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise error
