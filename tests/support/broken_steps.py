"""Step calls that break one rule of the protocol page each (sections 3 and 7)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

from tests.support.bare_function import bare

Op = dict[str, Any]


def with_step(step: type[Any]) -> type[Any]:
    """The function whose step calls are these."""
    return type("Function", (bare.Function,), {"step": step})


class ForgetfulStep(bare.Step):  # type: ignore[misc]
    """Knows its op only while the interrupt is on its way: code that catches that has swallowed it."""

    def end(self, op: Op) -> Any:
        raise Leaving(op)


class Leaving(bare.Interrupt):  # type: ignore[misc]
    """Carries the op."""

    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op


class SwallowableFunction(bare.Function):  # type: ignore[misc]
    """Answers what the interrupt carries, if it arrives."""

    step = ForgetfulStep

    def invoke(self, workflow: Callable[..., Any], request: dict[str, Any]) -> Op:
        def noted(request: dict[str, Any], step: Any) -> Any:
            try:
                return workflow(request, step)
            except Leaving as leaving:
                step.finish(leaving.op)
                raise

        made: Op = super().invoke(noted, request)
        return made


class DashedIds(bare.Step):  # type: ignore[misc]
    """Repeats are counted with a dash."""

    def next_id(self, user_id: str) -> str:
        step_id: str = super().next_id(user_id)
        return user_id + step_id[len(user_id) :].replace(":", "-")


class IdsFromTwo(bare.Step):  # type: ignore[misc]
    """The first repeat has the number 2."""

    def next_id(self, user_id: str) -> str:
        self._counts.setdefault(user_id, 0)
        step_id: str = super().next_id(user_id)
        if self._counts[user_id] == 1:
            self._counts[user_id] = 2
        return step_id


class SharedIds(bare.Step):  # type: ignore[misc]
    """A number that is taken is not passed over."""

    def next_id(self, user_id: str) -> str:
        count: int = self._counts.get(user_id, 0)
        self._counts[user_id] = count + 1
        return f"{user_id}:{count}" if count else user_id


class TrimmedIds(bare.Step):  # type: ignore[misc]
    """Blanks around an id are dropped."""

    def next_id(self, user_id: str) -> str:
        made: str = super().next_id(user_id.strip())
        return made


class NormalizedIds(bare.Step):  # type: ignore[misc]
    """Ids are normalized."""

    def next_id(self, user_id: str) -> str:
        made: str = super().next_id(unicodedata.normalize("NFC", user_id))
        return made


class AnyIds(bare.Step):  # type: ignore[misc]
    """Ids are not looked at."""

    def _begin(self, user_id: str) -> str:
        made: str = self.next_id(user_id)
        return made


class RunsAgain(bare.Step):  # type: ignore[misc]
    """The body of a memoized step is executed, and its result not used."""

    def run(self, user_id: str, fn: Callable[..., Any], *args: Any) -> Any:
        if user_id in self._memo:
            try:
                fn(*args)
            except Exception:
                return super().run(user_id, fn, *args)
        return super().run(user_id, fn, *args)


class NoResults(bare.Step):  # type: ignore[misc]
    """An empty object comes back as an empty list, as from a runtime that knows one kind of array."""

    def recall(self, step_id: str) -> Any:
        value = super().recall(step_id)
        return [] if value == {} else value


class NestedSteps(bare.Step):  # type: ignore[misc]
    """A step call inside a body is taken for one of the workflow."""

    def _begin(self, user_id: str) -> str:
        self._executing = None
        made: str = super()._begin(user_id)
        return made


class PlainErrors(bare.Step):  # type: ignore[misc]
    """Errors are texts."""

    def end(self, op: Op) -> Any:
        return super().end({**op, "error": op["error"]["message"]} if "error" in op else op)

    def finish(self, op: Op) -> None:
        super().finish({**op, "error": op["error"]["message"]} if "error" in op else op)


class AlwaysRetried(bare.Step):  # type: ignore[misc]
    """Nothing is final."""

    def end(self, op: Op) -> Any:
        return super().end({name: value for name, value in op.items() if name != "non_retriable"})

    def finish(self, op: Op) -> None:
        super().finish({name: value for name, value in op.items() if name != "non_retriable"})


class Milliseconds(bare.Step):  # type: ignore[misc]
    """A number of seconds is sent as one of milliseconds."""

    def end(self, op: Op) -> Any:
        return super().end({**op, "retry_after": op["retry_after"] * 1000} if "retry_after" in op else op)


class Uncatchable(bare.Step):  # type: ignore[misc]
    """A step that has failed for good ends the run, whatever the code would do about it."""

    def recall(self, step_id: str) -> Any:
        stored = self._memo[step_id]
        if stored["status"] == "failed":
            return self.end({"op": "run_failed", "error": stored["error"], "non_retriable": True})
        return super().recall(step_id)


class NamelessErrors(bare.Step):  # type: ignore[misc]
    """The error of a step that has failed comes back without its name."""

    def recall(self, step_id: str) -> Any:
        try:
            return super().recall(step_id)
        except bare.StepError as error:
            raise bare.StepError(step_id, "Error", error.message) from None


class NoMatch(bare.Step):  # type: ignore[misc]
    """A wait has no condition."""

    def ask(self, user_id: str, op: str, **fields: Any) -> Any:
        return super().ask(user_id, op, **{name: value for name, value in fields.items() if name != "match"})


class OwnTimeout(bare.Step):  # type: ignore[misc]
    """A wait without a timeout is given one."""

    def ask(self, user_id: str, op: str, **fields: Any) -> Any:
        return super().ask(user_id, op, **({"timeout": "1h", **fields} if op == "wait_for_event" else fields))


class LooseStep(bare.Step):  # type: ignore[misc]
    """A float that JSON cannot hold is marked, for NanOutputs."""

    def run(self, user_id: str, fn: Callable[..., Any], *args: Any) -> Any:
        def loose(*args: Any) -> Any:
            value = fn(*args)
            return f"!{value}!" if isinstance(value, float) and value - value != 0 else value

        return super().run(user_id, loose, *args)


class NanOutputs(bare.Function):  # type: ignore[misc]
    """Outputs are written whatever they are."""

    step = LooseStep

    def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
        status, text = super().answer(body, header)
        return status, text.replace(b'"!nan!"', b"NaN").replace(b'"!inf!"', b"Infinity")


class NullOutputs(bare.Step):  # type: ignore[misc]
    """What JSON cannot hold becomes null."""

    def run(self, user_id: str, fn: Callable[..., Any], *args: Any) -> Any:
        def safe(*args: Any) -> Any:
            value = fn(*args)
            try:
                return bare.storable(value)
            except bare.NonRetriable:
                return None

        return super().run(user_id, safe, *args)


class TwoOps(bare.Function):  # type: ignore[misc]
    """Every answer has its op twice."""

    def dispatch(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = super().dispatch(request)
        return {**answer, "ops": [*answer["ops"], *answer["ops"]]} if "ops" in answer else answer


class OneAtATime(bare.Function):  # type: ignore[misc]
    """What is known of an invocation is kept where the next one keeps it."""

    def invoke(self, workflow: Callable[..., Any], request: dict[str, Any]) -> Op:
        def noted(request: dict[str, Any], step: Any) -> Any:
            self.current = step
            return workflow(request, step)

        super().invoke(noted, request)
        return self.current.op or {"op": "run_failed", "error": "there is no op"}


class FirstAttempts(bare.Function):  # type: ignore[misc]
    """Each attempt is told that it is the first."""

    def invoke(self, workflow: Callable[..., Any], request: dict[str, Any]) -> Op:
        made: Op = super().invoke(workflow, {**request, "run": {**request["run"], "attempt": 0}})
        return made
