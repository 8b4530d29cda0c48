"""What a test has steps do instead of their own bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from ..known_options import known_options
from ..replay import Body

Error = BaseException | type[BaseException]

_INSTEAD = {
    "invoke": "; for an invoked workflow there is TestEngine(wf, stubs={…}): an output, or a function that raises",
    "wait_for_event": "; it has its event by engine.send, and its timeout without",
}


class UnusedError(AssertionError):
    """A fault has hit nothing, or an event was not sent because no run waited for it: the test tests less than it says.

    Also raised, as soon as that is known, for a fault of a step that has no body to replace.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """What a step does in place of its body, for the first `times` attempts of a run; None: for all of them.

    Of several for one step, the next begins where the one before ends. `workflow` is None for a step of any workflow.
    """

    step: str
    body: Callable[..., Any]
    times: int | None
    workflow: str | None = None

    def _is_of(self, workflow: str, step_id: str) -> bool:
        """Whether this is a fault of that step."""
        return self.step == step_id and self.workflow in (None, workflow)

    def __str__(self) -> str:
        return repr(self.step) + ("" if self.workflow is None else f" of workflow {self.workflow!r}")


class Script:
    """Faults that were given together, and which of them have hit."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        self._hit: set[Fault] = set()

    @property
    def unused(self) -> list[Fault]:
        """The faults that have hit nothing yet."""
        return [fault for fault in self.faults if fault not in self._hit]

    def hits(self, fault: Fault) -> None:
        """The body of the fault is executed."""
        self._hit.add(fault)


@known_options()
def fails(step: str, error: Error | None = None, *, times: int | None = 1, workflow: str | None = None) -> Fault:
    """The body of the step is not executed, and the attempt fails: the first `times` of a run, all with None.

    `step` is the id of a `step.run`, with its counter where it has one (`"add:1"`), `workflow` the name of its workflow
    where others have such a step too. `error` is an exception or its class, such
    as `NonRetriableError("…")` or `RetryAfterError("…", "1h")`; a RuntimeError by default.
    """
    raised = RuntimeError(f"{step} fails, as the test says") if error is None else error
    return Fault(step, partial(_raise, raised), times, workflow)


@known_options()
def returns(step: str, value: Any, *, times: int | None = None, workflow: str | None = None) -> Fault:
    """The body of the step is not executed, and the attempt completes with a value; if it is callable, with what it
    returns for the arguments of the step.
    """
    return Fault(step, value if callable(value) else lambda *_args, **_kwargs: value, times, workflow)


def scripted(scripts: Sequence[Script], workflow: str, step_id: str, attempts: int, body: Body) -> Body:
    """What is executed for an attempt of a step that has made so many before."""
    for script, fault in _faults_of(scripts, workflow, step_id):
        if fault.times is None or attempts < fault.times:
            script.hits(fault)
            return partial(fault.body, *body.args, **body.keywords)
        attempts -= fault.times
    return body


def refuse_faults(scripts: Sequence[Script], workflow: str, step_id: str, kind: str) -> None:
    """A step has no body. Raises UnusedError where a fault was to replace it."""
    for _, fault in _faults_of(scripts, workflow, step_id):
        raise UnusedError(
            f"a fault of step {fault}: it is {'an' if kind == 'invoke' else 'a'} {kind} step, and faults stand for the"
            f" bodies of step.run{_INSTEAD.get(kind, '')}"
        )


def _faults_of(scripts: Sequence[Script], workflow: str, step_id: str) -> Iterable[tuple[Script, Fault]]:
    return ((script, fault) for script in scripts for fault in script.faults if fault._is_of(workflow, step_id))


def _raise(error: Error, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise error
