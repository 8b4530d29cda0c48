"""Workflows of the model: scripts of steps, and what each must come to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A `step.run`. It fails `failures` times and then completes, or for good: `fails`, at once where `non_retriable`.

    `own_attempts` replaces the workflow's; `retry_after_ms` the backoff. `stumbles`: the workflow raises outside a step
    so many times before it gets here. `slow`: the body waits until it is let go on. `fatal`: the workflow does not
    catch the failure.
    """

    id: str
    failures: int = 0
    fails: bool = False
    non_retriable: bool = False
    own_attempts: int | None = None
    retry_after_ms: int | None = None
    fatal: bool = False
    stumbles: int = 0
    slow: bool = False

    def fields(self) -> Json:
        """What every op of the step carries."""
        own = {} if self.own_attempts is None else {"max_attempts": self.own_attempts}
        return {"id": self.id, "name": self.id, **own}

    def fails_for_good(self, attempts: int) -> bool:
        """Whether it ends as failed in a workflow that allows so many attempts."""
        return self.fails or self.failures >= (self.own_attempts or attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nap:
    """A sleep."""

    id: str
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Await:
    """A wait for an event. `matched`: of the same `data.k`; `above`: only with a greater `data.x`.

    `lookback`: None, "run", or a duration.
    """

    id: str
    event: str
    matched: bool
    above: int | None
    timeout_ms: int
    lookback: str | None = None

    def takes(self, data: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
        """Whether an event with this data is what a run with its own data waits for."""
        return (not self.matched or data["k"] == own["k"]) and (self.above is None or data["x"] > self.above)


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke:
    """A child run."""

    id: str
    workflow: str
    timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Events that the step sends, all with the run's own data."""

    id: str
    events: tuple[str, ...]


Step = Work | Nap | Await | Invoke | Send


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A concurrency limit; `keyed`: for each `data.k`."""

    limit: int
    keyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """A workflow: its script and its options. `triggers`: event name → only events with a greater `data.x`.

    `checkpoint`: how many steps an answer may hold. `beside`: steps that are started together with the one before.
    """

    name: str
    steps: tuple[Step, ...]
    retries: int = 3
    timeout_ms: int | None = None
    limits: tuple[Limit, ...] = ()
    triggers: Mapping[str, int | None]
    cron: str | None = None
    once_per_n: bool = False
    cancelled_by: str | None = None
    cancel_within_ms: int | None = None
    checkpoint: int | None = None
    beside: frozenset[str] = frozenset()

    @property
    def groups(self) -> list[tuple[Step, ...]]:
        """The script: one group of steps after another, those of a group together."""
        found: list[tuple[Step, ...]] = []
        for step in self.steps:
            if step.id in self.beside:
                found[-1] = (*found[-1], step)
            else:
                found.append((step,))
        return found

    def begins_so(self, order: Sequence[str]) -> bool:
        """Whether steps that were stored in this order are a beginning of the script."""
        left = list(order)
        for group in self.groups:
            ids = {step.id for step in group}
            some, left = left[: len(ids)], left[len(ids) :]
            if not left:
                return len(set(some)) == len(some) and ids.issuperset(some)
            if set(some) != ids:
                return False
        return False

    @property
    def attempts(self) -> int:
        """Attempts of each step, and of the function."""
        return self.retries + 1

    def step(self, id: str) -> Step:
        """The step with this id."""
        return next(step for step in self.steps if step.id == id)

    def gates(self, data: Mapping[str, Any]) -> list[tuple[int, int, object]]:
        """Place, limit and key of the gates of a run with this data."""
        return [(place, limit.limit, data.get("k") if limit.keyed else None) for place, limit in enumerate(self.limits)]

    def definition(self) -> Json:
        """What the project declares."""
        triggers: list[Json] = [
            {"event": event} if above is None else {"event": event, "if": f"event.data.x > {above}"}
            for event, above in self.triggers.items()
        ]
        if self.cron is not None:
            triggers.append({"cron": self.cron})
        found: Json = {"name": self.name, "retries": self.retries, "triggers": triggers}
        if self.timeout_ms is not None:
            found["timeout"] = f"{self.timeout_ms}ms"
        if self.limits:
            found["concurrency"] = [
                {"limit": limit.limit, **({"key": "event.data.k"} if limit.keyed else {})} for limit in self.limits
            ]
        if self.checkpoint is not None:
            found["checkpoint"] = {"max_steps": self.checkpoint}
        if self.once_per_n:
            found["idempotency"] = "event.data.n"
        if self.cancelled_by is not None:
            within = {} if self.cancel_within_ms is None else {"timeout": f"{self.cancel_within_ms}ms"}
            found["cancel_on"] = [{"event": self.cancelled_by, "match": "data.k", **within}]
        return found


def answer(step: Step, data: Mapping[str, Any]) -> Json:
    """The op of a step that is no `Work`."""
    named = {"id": step.id, "name": step.id}
    match step:
        case Nap(ms=ms):
            return {"op": "sleep", "duration": f"{ms}ms", **named}
        case Await():
            return {"op": "wait_for_event", **named, **_awaited(step)}
        case Invoke(workflow=workflow, timeout_ms=timeout_ms):
            return {"op": "invoke", "workflow": workflow, "data": dict(data), "timeout": f"{timeout_ms}ms", **named}
        case Send(events=events):
            return {"op": "send_event", "events": [{"name": name, "data": dict(data)} for name in events], **named}
    raise AssertionError(f"{step} has a body")


def _awaited(step: Await) -> Json:
    fields: Json = {"event": step.event, "timeout": f"{step.timeout_ms}ms"}
    if step.matched:
        fields["match"] = "data.k"
    if step.above is not None:
        fields["if"] = f"async.data.x > {step.above}"
    if step.lookback is not None:
        fields["lookback"] = step.lookback
    return fields


def output_of(workflow: str, memo: Sequence[tuple[str, str, Any]]) -> str:
    """What a run returns: everything that its last invocation was shown, as (id, status, payload), by id.

    Of an error, what an SDK shows to the code: its name and its message.
    """
    saw = [
        [id, status, payload if status == "completed" else {key: payload[key] for key in ("name", "message")}]
        for id, status, payload in sorted(memo, key=lambda each: each[0])
    ]
    return json.dumps({"workflow": workflow, "saw": saw}, sort_keys=True)
