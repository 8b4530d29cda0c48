"""Step calls as values: what the user asked for, checked, before it has an id in the run (protocol section 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from .duration import duration_field, time_field
from .errors import Duration, SerializationError, StepArgumentError
from .event import EVENT_MEMBERS, OutgoingEvent
from .shown import shown
from .values import encode

MAX_INPUT_BYTES = 32 * 1024
MAX_EVENTS = 100
MAX_RETRIES = 20


_NO_FIELDS: Mapping[str, object] = MappingProxyType({})


class StepCall(NamedTuple):
    """One call of a step method. `fields` are the op's own; only `run` has a `body`, to be executed now."""

    op: str
    user_id: str
    fields: Mapping[str, object] = _NO_FIELDS
    body: partial[Any] | None = None
    arguments: object = None

    def input_text(self) -> str | None:
        """The JSON of the arguments of `run`, for the timeline; None if there are none, or they are not small JSON."""
        if self.arguments is None:
            return None
        try:
            text = encode(self.arguments)
        except SerializationError:
            return None
        return text if len(text.encode()) <= MAX_INPUT_BYTES else None


def run_call(
    user_id: str,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    max_attempts: int | None,
) -> StepCall:
    """`step.run`: the input is the list of positional arguments, or `{"args", "kwargs"}` when there are named ones."""
    if callable(user_id):
        name = getattr(user_id, "__name__", type(user_id).__name__)
        raise StepArgumentError(f"step.run needs an id before the function: step.run({name!r}, {name}, …)")
    if not callable(fn):
        raise StepArgumentError(
            f"step.run needs a function: step.run({user_id!r:.100}, fn, arg); got {type(fn).__name__}"
        )
    arguments: object = {"args": args, "kwargs": kwargs} if kwargs else (args or None)
    fields = _NO_FIELDS if max_attempts is None else {"max_attempts": max_attempts}
    return StepCall("run", user_id, fields, partial(fn, *args, **kwargs), arguments)


def sleep_call(user_id: str, duration: Duration) -> StepCall:
    """`step.sleep`: zero wakes at once."""
    return StepCall("sleep", user_id, {"duration": duration_field(duration, "duration", zero=True)})


def sleep_until_call(user_id: str, when: datetime | str) -> StepCall:
    """`step.sleep_until`: a time in the past wakes at once."""
    return StepCall("sleep", user_id, {"until": time_field(when, "when")})


def wait_call(
    user_id: str,
    event: str,
    match: str | None,
    if_: str | None,
    timeout: Duration | None,
    lookback: Duration | None,
) -> StepCall:
    """`step.wait_for_event`; `lookback` may also be `"run"`. Name and expressions are judged in `asked.py`."""
    fields: dict[str, object] = {"event": _text(event, "event")}
    if match is not None:
        fields["match"] = _text(match, "match")
    if if_ is not None:
        fields["if"] = _text(if_, "if_")
    if timeout is not None:
        fields["timeout"] = duration_field(timeout, "timeout")
    if lookback is not None:
        fields["lookback"] = "run" if lookback == "run" else duration_field(lookback, "lookback", zero=True)
    return StepCall("wait_for_event", user_id, fields)


def invoke_call(user_id: str, workflow: object, data: Mapping[str, Any] | None, timeout: Duration | None) -> StepCall:
    """`step.invoke`: `workflow` is a name or a decorated workflow function of the same project."""
    name = workflow_name(workflow)
    if data is not None and not isinstance(data, Mapping):
        raise StepArgumentError(f"data: an object (dict), not {type(data).__name__}")
    fields: dict[str, object] = {"workflow": name, "data": {} if data is None else dict(data)}
    if timeout is not None:
        fields["timeout"] = duration_field(timeout, "timeout")
    return StepCall("invoke", user_id, fields)


def workflow_name(workflow: object) -> str:
    """The name of a workflow that is given as its name or function. Raises StepArgumentError for anything else."""
    name = workflow if isinstance(workflow, str) else getattr(workflow, "__runr_workflow__", None)
    if not isinstance(name, str):
        raise StepArgumentError(f"workflow: a name or a function decorated with @wf.workflow, not {workflow!r:.100}")
    return name


def send_call(user_id: str, events: OutgoingEvent | Sequence[OutgoingEvent]) -> StepCall:
    """`step.send_event`: one event or a list of 1–100."""
    listed: Sequence[object] = [events] if isinstance(events, Mapping) else events
    if not isinstance(listed, list | tuple) or not 1 <= len(listed) <= MAX_EVENTS:
        raise StepArgumentError(f"events: an event (dict) or a list of 1 to {MAX_EVENTS} of them")
    return StepCall("send_event", user_id, {"events": [_event(item, index) for index, item in enumerate(listed)]})


def max_attempts_of(retries: object) -> int:
    """`options(retries=…)` as the op carries it: attempts = retries + 1."""
    if not isinstance(retries, int) or isinstance(retries, bool) or not 0 <= retries <= MAX_RETRIES:
        raise StepArgumentError(f"retries: an integer from 0 to {MAX_RETRIES}, not {retries!r:.100}")
    return retries + 1


def _event(item: object, index: int) -> dict[str, object]:
    if not isinstance(item, Mapping) or not isinstance(item.get("name"), str):
        like = "{'name': 'order.paid', 'data': {}}"
        raise StepArgumentError(f"events[{index}]: an object with a name, like {like}, not {shown(item)}")
    # What an event does not have stays, to be refused with what else the engine does not take (`asked.py`).
    event = {key: value for key, value in item.items() if value is not None or key not in EVENT_MEMBERS}
    moment = event.get("ts")
    if isinstance(moment, datetime):
        event["ts"] = _unix_ms(moment)
    return event


def _unix_ms(moment: datetime) -> int:
    """Unix milliseconds of a datetime; one without a timezone is UTC."""
    text = time_field(moment, "ts")
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise StepArgumentError(f"{name}: a non-empty string, not {value!r:.100}")
    return value
