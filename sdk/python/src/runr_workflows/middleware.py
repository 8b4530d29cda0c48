"""Middleware: what a project does around every invocation and step, and to every value that the engine stores."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .context import Context

Where = Literal["event", "step", "run"]
"""What a value is: data of an event (also of an invoke), the result or the arguments of a step, the output of a run."""

HOOKS = ("invocation_starts", "invocation_ends", "step_starts", "step_ends", "encode", "decode")


@dataclass(frozen=True, slots=True)
class StepInfo:
    """A step whose function is executed now. `attempt` counts from 0; `args` and `kwargs` are those of `step.run`."""

    id: str
    name: str
    workflow: str
    run_id: str
    attempt: int
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What an execution of a step came to: `completed` with `output`, or `failed` with `error`."""

    status: Literal["completed", "failed"]
    output: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """What an invocation came to: the run has `completed`, the function has `failed`, or the run `continues`.

    `error` is `{"name", "message"}` of a failed attempt, of the function or of the step that ended the invocation.
    """

    status: Literal["completed", "failed", "continues"]
    error: Mapping[str, str] | None = None


class Middleware:
    """An object with any of these methods, given as `Workflows(middleware=[first, second])`, of any class.

    `…_starts` and `encode` are called in the order of the list, `…_ends` and `decode` in reverse. For async workflows
    all but `decode` may be async. What `invocation_starts` and `decode` raise fails the attempt of the function, what
    `step_starts` and `encode` raise that of the step; what `…_ends` raises is logged, for the result stands. A replayed
    step calls `decode`, and neither `step_starts` nor `step_ends`.
    """

    def invocation_starts(self, ctx: Context[Any]) -> Awaitable[None] | None:
        """The workflow function is about to be called; `ctx.event` is decoded."""

    def invocation_ends(self, ctx: Context[Any], outcome: InvocationOutcome) -> Awaitable[None] | None:
        """It has returned, raised, or is left at a step."""

    def step_starts(self, step: StepInfo) -> Awaitable[None] | None:
        """The function of a `step.run` is about to be executed."""

    def step_ends(self, step: StepInfo, outcome: StepOutcome) -> Awaitable[None] | None:
        """It was executed."""

    def encode(self, value: Any, where: Where) -> Any:
        """What is stored in place of a value: JSON, and an object if `where` is "event"."""
        return value

    def decode(self, value: Any, where: Where) -> Any:
        """The value in place of which this was stored.

        Events from elsewhere were never encoded, and neither was what was stored before the middleware was there: give
        those back as they are.
        """
        return value
