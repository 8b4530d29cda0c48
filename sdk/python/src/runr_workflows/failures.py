"""What an exception becomes on the wire: error, retriable or not, and when to retry (protocol section 3)."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from .duration import time_field
from .errors import (
    NestedStepError,
    NonDeterminismError,
    NonRetriableError,
    RetryAfterError,
    SerializationError,
    SharedStepIdError,
    StepArgumentError,
    StepError,
    StepNotAwaitedError,
    UnknownOptionError,
)

_FINAL = (
    NonRetriableError,
    StepError,
    NestedStepError,
    NonDeterminismError,
    SharedStepIdError,
    StepNotAwaitedError,
    StepArgumentError,
    SerializationError,
    UnknownOptionError,
)
"""Errors that the next attempt would meet again."""

_DELIBERATE = (*_FINAL, RetryAfterError)

_PENDING = "PendingStep"
"""What is to be awaited (`async_step.py`)."""
_MESSAGE_CHARS = 8 * 1024
_STACK_CHARS = 32 * 1024
_OWN_FILES = str(Path(__file__).parent / "_")[:-1]


@dataclass(frozen=True, slots=True)
class Failure:
    """The error fields of a `step_failed` or `run_failed` op."""

    error: dict[str, str]
    non_retriable: bool
    retry_after: str | int | float | None
    is_deliberate: bool = False
    """Whether user code raised it to say what comes next, or the SDK with a sentence that says all."""

    def fields(self) -> dict[str, object]:
        """As the op carries them; defaults are left out."""
        fields: dict[str, object] = {"error": self.error}
        if self.non_retriable:
            fields["non_retriable"] = True
        if self.retry_after is not None:
            fields["retry_after"] = self.retry_after
        return fields


def failure_of(error: BaseException) -> Failure:
    """Classifies an error raised by user code, inside or outside a step.

    A group (asyncio.TaskGroup) is as retriable as its least retriable member, and one of a single member is that
    member. A StepError keeps the error of the step that failed.
    """
    leaves = leaves_of(error)
    only = leaves[0] if len(leaves) == 1 else error
    non_retriable = any(isinstance(leaf, _FINAL) or takes_call_for_result(leaf) for leaf in leaves)
    retry_after = next((_retry_after(leaf) for leaf in leaves if isinstance(leaf, RetryAfterError)), None)
    deliberate = all(isinstance(leaf, _DELIBERATE) for leaf in leaves)
    return Failure(_describe(only), non_retriable, None if non_retriable else retry_after, deliberate)


def takes_call_for_result(error: BaseException) -> bool:
    """Whether an error is of code that has forgotten an `await`: all that Python raises then names the type."""
    return isinstance(error, Exception) and _PENDING in text_of(error)


def text_of(error: BaseException) -> str:
    """The message of an error."""
    try:
        return str(error)
    except Exception:
        return "(the error's text cannot be shown)"


def _describe(error: BaseException) -> dict[str, str]:
    if isinstance(error, StepError):
        described = {"name": error.name, "message": error.message}
        return described | {"stack": error.stack} if error.stack is not None else described
    return {"name": type(error).__name__, "message": text_of(error)[:_MESSAGE_CHARS], "stack": _stack(error)}


def _stack(error: BaseException) -> str:
    """The traceback from the first line of user code on; the end of it if it is too long."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        start = start.tb_next
    text = "".join(traceback.format_exception(type(error), error, start))
    return text[-_STACK_CHARS:]


def leaves_of(error: BaseException) -> list[BaseException]:
    """The members of a group, and those of its groups; of any other error, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for member in error.exceptions for leaf in leaves_of(member)]
    return [error]


def _retry_after(error: RetryAfterError) -> str | int | float | None:
    """As the op carries it. A bad one goes out as it is: the engine ignores it with a warning on the attempt."""
    value = error.retry_after
    if isinstance(value, datetime):
        return time_field(value, "retry_after")
    if isinstance(value, timedelta):
        return f"{value // timedelta(milliseconds=1)}ms"
    if isinstance(value, int) or (isinstance(value, float) and value - value == 0):
        return value
    return str(value)
