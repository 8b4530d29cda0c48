"""What both clients do: every method as a flow of requests, from arguments to what is returned."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict, cast
from uuid import uuid4

from ..duration import duration_field, parse_duration, time_field
from ..errors import Duration
from ..event import EVENT_MEMBERS, OutgoingEvent
from ..hooks import Hooks
from ..known_options import refuse_unknown
from ..middleware import Where
from ..shown import shown
from .errors import ApiError, ResultTimeout, RunFailed
from .exchange import Answered, Call, Flow, Pause, perform, segment
from .settings import ClientSettings
from .views import Run, RunDetail, RunStatus, RunStep, SentEvent, StoredEvent

MOST_EVENTS = 100
WAIT_S = 30
"""How long one request waits for the end of a run."""
_LONGEST_PAUSE_S = 5.0

WorkflowRef = str | Callable[..., Any]
Time = datetime | str


class StartOptions(TypedDict, total=False):
    """How a run is started.

    `key`: a second start of the workflow with it answers the run of the first; it takes the place of the option
    `idempotency`. `delay` or `at` start it later.
    """

    key: str | None
    delay: Duration | None
    at: Time | None
    tags: Sequence[str]
    test: bool


class RunFilter(TypedDict, total=False):
    """Which runs a list holds. `q` is a run's id, an idempotency key or an event's id, `since` and `until` are times.

    `page_size` entries are asked for at once: 1 to 200, 50 by default.
    """

    workflow: WorkflowRef | None
    status: RunStatus | Sequence[RunStatus] | None
    tag: str | Sequence[str] | None
    q: str | None
    since: Time | None
    until: Time | None
    page_size: int | None


class EventFilter(TypedDict, total=False):
    """Which events a list holds. `name` is the beginning of the name."""

    name: str | None
    source: str | None
    since: Time | None
    until: Time | None
    page_size: int | None


class Core:
    """The methods of a client."""

    def __init__(
        self, settings: ClientSettings, hooks: Hooks | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._hooks = hooks
        self._clock = clock

    def send(self, events: Sequence[OutgoingEvent], *, test: bool) -> Flow[list[SentEvent]]:
        """Sends events, 100 a request. Those without an id get one: a request made again sends nothing twice."""
        sent: list[SentEvent] = []
        for first in range(0, len(events), MOST_EVENTS):
            batch = events[first : first + MOST_EVENTS]
            body = []
            for event in batch:
                body.append((yield from self._outgoing(event)))
            query = {"test": 1} if test else None
            answered = yield from self._call(Call("POST", "/events", {"events": body}, query, is_repeatable=True))
            for given, came in zip(batch, answered.content["events"], strict=True):
                # By an id that was made here it is known from the same request, made before.
                came["duplicate"] = came["duplicate"] and given.get("id") is not None
                sent.append(came)
        return sent

    def start(
        self, workflow: WorkflowRef, data: Mapping[str, Any] | None, options: StartOptions
    ) -> Flow[tuple[str, bool]]:
        """Starts a run: its id, and whether it is new.

        Without a key, one is made for a workflow that is given as its function and has no key of its own.
        """
        name, has_own_key = _described(workflow)
        key, delay, at = options.get("key"), options.get("delay"), options.get("at")
        is_ours = key is None and has_own_key is False
        if is_ours:
            key = str(uuid4())
        body = {
            "data": (yield from self._encoded(data or {})),
            "idempotency_key": key,
            "delay": None if delay is None else duration_field(delay, "delay", zero=True),
            "at": None if at is None else time_field(at, "at"),
            "tags": list(options.get("tags", ())) or None,
            "test": options.get("test") or None,
        }
        path = f"/projects/{segment(self._settings.project)}/workflows/{segment(name)}/runs"
        is_repeatable = key is not None or bool(has_own_key)
        answered = yield from self._call(Call("POST", path, body, is_repeatable=is_repeatable))
        return answered.content["id"], is_ours or answered.status == 201

    def get(self, run_id: str) -> Flow[RunDetail]:
        """A run with its steps."""
        run = cast(RunDetail, (yield from self._call(_get(run_id))).content)
        if self._hooks is None:
            return run
        if run["event"] is not None:
            data = yield from self._decoded(run["event"]["data"], "event")
            run = {**run, "event": {**run["event"], "data": data}}
        steps: list[RunStep] = []
        for step in run["steps"]:
            steps.append((yield from self._decoded_step(step)))
        output = run["output"] if run["status"] != "completed" else (yield from self._decoded(run["output"], "run"))
        return {**run, "output": output, "steps": steps}

    def result(self, run_id: str, timeout: Duration | None) -> Flow[Any]:
        """The output of a run, waited for. Raises RunFailed and ResultTimeout."""
        allowed_s = None if timeout is None else parse_duration(timeout) / 1000
        end = None if allowed_s is None else self._clock() + allowed_s
        number = 0
        while True:
            began = self._clock()
            left = WAIT_S if end is None else max(0.0, end - began)
            wait = min(WAIT_S, int(left) + (left > int(left)))
            found = (yield from self._call(_get(run_id, "/result", query={"wait": wait}, wait_s=wait))).content
            if found["ended"]:
                if found["status"] != "completed":
                    raise RunFailed(run_id, found["status"], found["error"])
                return (yield from self._decoded(found["output"], "run"))
            now = self._clock()
            if end is not None and now >= end:
                raise ResultTimeout(run_id, allowed_s or 0)
            # The engine has waited, unless something in between does not let it: then this does, longer and longer.
            if now - began < wait / 2:
                pause = min(0.1 * 2**number, _LONGEST_PAUSE_S)
                yield Pause(pause if end is None else min(pause, end - now))
                number = min(number + 1, 10)

    def cancel(self, run_id: str, children: str) -> Flow[Run]:
        """Cancels a run. Made again after a connection that broke, it finds its own work done."""
        body = {"children": None if children == "cancel" else children}
        call = Call("POST", f"/runs/{segment(run_id)}/cancel", body, is_repeatable=True)
        try:
            return cast(Run, (yield from self._call(call)).content)
        except ApiError as error:
            if error.status != 409 or error.requests == 1:
                raise
            run = cast(Run, (yield from self._call(_get(run_id))).content)
            if run["status"] != "cancelled":
                raise
            return run

    def retry(self, run_id: str) -> Flow[Run]:
        """Lets an ended run go on."""
        return cast(Run, (yield from self._call(Call("POST", f"/runs/{segment(run_id)}/retry", {}))).content)

    def replay(self, run_id: str, from_step: str | None, data: Mapping[str, Any] | None) -> Flow[str]:
        """Starts a new run with the same event; its id."""
        encoded = None if data is None else (yield from self._encoded(data))
        body = {"from_step": from_step, "data": encoded}
        answered = yield from self._call(Call("POST", f"/runs/{segment(run_id)}/replay", body))
        return str(answered.content["id"])

    def event(self, event_id: str) -> Flow[StoredEvent]:
        """One event with its data."""
        path = f"/events/{segment(event_id)}"
        event = cast(StoredEvent, (yield from self._call(Call("GET", path, is_repeatable=True))).content)
        return {**event, "data": (yield from self._decoded(event["data"], "event"))}

    def runs_page(self, asked: RunFilter, cursor: str | None) -> Flow[tuple[list[Run], str | None]]:
        """A page of runs, and the cursor of the next."""
        workflow = asked.get("workflow")
        query = {
            "workflow": None if workflow is None else _described(workflow)[0],
            "status": asked.get("status"),
            "tag": asked.get("tag"),
            "q": asked.get("q"),
        }
        return (yield from self._page(f"/projects/{segment(self._settings.project)}/runs", query, asked, cursor))

    def events_page(self, asked: EventFilter, cursor: str | None) -> Flow[tuple[list[StoredEvent], str | None]]:
        """A page of events, and the cursor of the next."""
        query = {"name": asked.get("name"), "source": asked.get("source")}
        return (yield from self._page("/events", query, asked, cursor))

    def _page(
        self, path: str, query: dict[str, Any], asked: RunFilter | EventFilter, cursor: str | None
    ) -> Flow[tuple[list[Any], str | None]]:
        since, until = asked.get("since"), asked.get("until")
        query |= {
            "from": None if since is None else time_field(since, "since"),
            "to": None if until is None else time_field(until, "until"),
            "limit": asked.get("page_size"),
            "cursor": cursor,
        }
        page = (yield from self._call(Call("GET", path, query=query, is_repeatable=True))).content
        return page["data"], page["next_cursor"]

    def _call(self, call: Call) -> Flow[Answered]:
        return perform(call, self._settings)

    def _outgoing(self, event: OutgoingEvent) -> Flow[dict[str, Any]]:
        moment = event.get("ts")
        made: dict[str, Any] = {
            "name": event["name"],
            "data": (yield from self._encoded(event.get("data") or {})),
            "id": event["id"] if event.get("id") is not None else str(uuid4()),
        }
        if moment is not None:
            made["ts"] = _unix_ms(moment) if isinstance(moment, datetime) else moment
        return made

    def _encoded(self, data: Mapping[str, Any]) -> Generator[Any, Any, Any]:
        return data if self._hooks is None else (yield from self._hooks.encode(data, "event"))

    def _decoded(self, value: Any, where: Where) -> Generator[Any, Any, Any]:
        if self._hooks is None or value is None:
            return value
        return (yield from self._hooks.decode(value, where))

    def _decoded_step(self, step: RunStep) -> Generator[Any, Any, RunStep]:
        given = step["input"]
        if step["kind"] == "run":
            given = yield from self._decoded(given, "step")
        elif step["kind"] == "invoke" and isinstance(given, dict):
            given = {**given, "data": (yield from self._decoded(given.get("data"), "event"))}
        output = step["output"]
        if step["kind"] == "run" and step["status"] == "completed":
            output = yield from self._decoded(output, "step")
        elif step["kind"] == "invoke" and step["status"] == "completed":
            output = yield from self._decoded(output, "run")
        elif step["kind"] == "wait_for_event" and output is not None:
            output = {**output, "data": (yield from self._decoded(output["data"], "event"))}
        return {**step, "input": given, "output": output}


def outgoing(name: str, data: Mapping[str, Any] | None, id: str | None, ts: int | datetime | None) -> OutgoingEvent:
    """One event of the arguments of `send`."""
    event: dict[str, Any] = {"name": name, "data": data, "id": id, "ts": ts}
    return cast(OutgoingEvent, {key: value for key, value in event.items() if value is not None})


def listed(events: Iterable[OutgoingEvent]) -> list[OutgoingEvent]:
    """The events of `send_many`. Raises ValueError for none, and for what is no event, UnknownOptionError."""
    if isinstance(events, Mapping):
        raise ValueError("events: a list of events; one goes with send(name, data)")
    found = list(events)
    if not found:
        raise ValueError("events: at least one")
    for index, event in enumerate(found):
        path = f"events[{index}]"
        if not isinstance(event, Mapping) or not isinstance(event.get("name"), str):
            like = "{'name': 'order.paid', 'data': {}}"
            raise ValueError(f"{path}: an object with a name, like {like}, not {shown(event)}")
        refuse_unknown(event, EVENT_MEMBERS, f"{path}.")
    return found


def _get(run_id: str, more: str = "", **options: Any) -> Call:
    return Call("GET", f"/runs/{segment(run_id)}{more}", is_repeatable=True, **options)


def _described(workflow: WorkflowRef) -> tuple[str, bool | None]:
    """The name of a workflow, and whether it has an idempotency key of its own; None where that is not known."""
    if isinstance(workflow, str):
        return workflow, None
    definition = getattr(workflow, "__runr_definition__", None)
    if not isinstance(definition, Mapping):
        raise TypeError(f"workflow: a name or a function decorated with @wf.workflow, not {workflow!r:.100}")
    return str(definition["name"]), "idempotency" in definition


def _unix_ms(moment: datetime) -> int:
    return int(datetime.fromisoformat(time_field(moment, "ts")).timestamp() * 1000)
