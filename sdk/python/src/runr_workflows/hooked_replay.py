"""Replay with middleware: its own kinds of replay, so that there is no cost where there is none.

Async hooks take their time where a body takes its own: then the step owns the invocation. What is replayed must take
none, or code that runs side by side would come to its calls in another order each time; so `decode` is never async.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

from .calls import StepCall
from .context import Context
from .errors import MiddlewareError, NonRetriableError, RetryAfterError, SerializationError
from .hooks import Hooks
from .interrupt import StepInterrupt
from .kept import HookedBody
from .middleware import StepInfo, StepOutcome
from .replay import BODY_FAULTS, Replay, Report, StepFlow, step_report

AnyReplay = TypeVar("AnyReplay", bound=Replay)

_OF_HOOKS = (MiddlewareError, NonRetriableError, RetryAfterError)


def hooked(kind: type[AnyReplay], hooks: Hooks | None) -> type[AnyReplay]:
    """A kind of replay with middleware; the kind itself without any."""
    if hooks is None:
        return kind
    made: type[AnyReplay] = type(f"Hooked{kind.__name__}", (HookedReplay, kind), {"hooks": hooks})
    return made


class HookedReplay(Replay):
    """Calls the hooks of steps, and gives values through `encode` and `decode`."""

    hooks: Hooks
    context: Context[Any] | None = None
    """Of the invocation, once it has begun."""

    def __init__(self, *args: Any, capture_input: bool, **options: Any) -> None:
        # Arguments are encoded when their step has begun: only then may an async hook take its time.
        super().__init__(*args, capture_input=capture_input and not self.hooks.encodes, **options)
        self._captures = capture_input and self.hooks.encodes
        if not self._parallel:
            self.hooks = self.hooks.blocking()
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        """Steps whose body has returned or raised."""
        self._inputs: dict[str, str] = {}

    def stored(self, step_id: str) -> Mapping[str, Any] | None:
        """As in `Replay`; what is to be decoded goes the longer way."""
        return None if self.hooks.decodes else super().stored(step_id)

    def perform(self, call: StepCall, step_id: str) -> StepFlow:
        """As in `Replay`."""
        flow = super().perform(call, step_id)
        value = yield from (flow if call.body is None else self._around_body(flow, call, step_id))
        try:
            return (yield from self._decoded(call, value))
        except _OF_HOOKS as error:
            self.fail(error)
            raise StepInterrupt from error

    def _around_body(self, flow: StepFlow, call: StepCall, step_id: str) -> StepFlow:
        """Drives the flow of a `step.run`, with the hooks around what it does with the body."""
        try:
            todo = next(flow)
            while True:
                try:
                    if step_id in self._begun:
                        self._begun.remove(step_id)
                        done = yield from self._hooked(call, step_id, todo)
                    else:
                        done = yield todo
                except BaseException as error:
                    todo = flow.throw(error)
                else:
                    todo = flow.send(done)
        except StopIteration as stop:
            return stop.value
        finally:
            flow.close()

    def _hooked(self, call: StepCall, step_id: str, body: Any) -> Generator[Any, Any, Any]:
        flow = self._execute(call, step_id, body)
        if not self._parallel:
            return (yield from flow)
        return (yield HookedBody(flow, lambda: step_id in self._ended))

    def _execute(self, call: StepCall, step_id: str, body: Any) -> StepFlow:
        step = self._info(call, step_id)
        if self._captures and call.arguments is not None:
            yield from self._capture(call, step_id)
        yield from self.hooks.step_starts(step)
        try:
            try:
                value = yield body
            finally:
                self._ended.add(step_id)
            stored = yield from self.hooks.encode(value, "step")
        except BODY_FAULTS as error:
            yield from self.hooks.step_ends(step, StepOutcome("failed", error=error))
            raise
        yield from self.hooks.step_ends(step, StepOutcome("completed", value))
        return stored

    def _capture(self, call: StepCall, step_id: str) -> Generator[Any, Any, None]:
        """Encodes the arguments. They are for the timeline alone: where that fails, they are left out."""
        try:
            encoded = yield from self.hooks.encode(call.arguments, "step")
        except _OF_HOOKS:
            return
        text = call._replace(arguments=encoded).input_text()
        if text is not None:
            self._inputs[step_id] = text

    def _info(self, call: StepCall, step_id: str) -> StepInfo:
        context, body = self.context, call.body
        assert context is not None
        assert body is not None
        return StepInfo(
            step_id, call.user_id, context.workflow, context.run_id, context.attempt, body.args, body.keywords
        )

    def _enter(self, step_id: str) -> None:
        super()._enter(step_id)
        self._begun.add(step_id)

    def _report(self, call: StepCall, step_id: str, report: Report) -> StepFlow:
        given = self._inputs.pop(step_id, None)
        if given is not None:
            report = report._replace(text=f'{report.text[:-1]},"input":{given}}}')
        elif self.hooks.encodes and call.op in ("invoke", "send_event") and not self.is_closed:
            report = yield from self._with_encoded_data(call, step_id)
        return (yield from super()._report(call, step_id, report))

    def _with_encoded_data(self, call: StepCall, step_id: str) -> Generator[Any, Any, Report]:
        super()._enter(step_id)
        report = None
        try:
            fields = dict(call.fields)
            if call.op == "invoke":
                fields["data"] = yield from self._encoded_data(fields["data"])
            else:
                fields["events"] = yield from self._encoded_events(fields["events"])
            report = step_report(call.op, call, step_id, fields)
        except (*_OF_HOOKS, SerializationError) as error:
            self.fail(error)
            raise StepInterrupt from error
        finally:
            if report is None:
                self._left(step_id)
        return report

    def _encoded_events(self, events: Any) -> Generator[Any, Any, list[dict[str, Any]]]:
        encoded = []
        for event in events:
            data = yield from self._encoded_data(event.get("data") or {})
            encoded.append({**event, "data": data})
        return encoded

    def _encoded_data(self, data: Any) -> Generator[Any, Any, dict[str, Any]]:
        encoded = yield from self.hooks.encode(data, "event")
        if not isinstance(encoded, Mapping):
            raise NonRetriableError(f"middleware has encoded data of an event as {type(encoded).__name__}, no object")
        return dict(encoded)

    def _decoded(self, call: StepCall, value: Any) -> StepFlow:
        if call.op == "run":
            return (yield from self.hooks.decode(value, "step"))
        if call.op == "invoke":
            return (yield from self.hooks.decode(value, "run"))
        if call.op == "wait_for_event" and value is not None:
            return {**value, "data": (yield from self.hooks.decode(value["data"], "event"))}
        return value
