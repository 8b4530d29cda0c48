"""What was acknowledged and counted, against what is stored: over all runs of an episode."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from tests.model.draw import WATCHER
from tests.model.ledger import Ledger
from tests.model.machine import Machine
from tests.model.script import Await, Workflow
from tests.model.stored import Row, Stored


class Acknowledged:
    """Holds answers, effects of events and usage against the runs that there are."""

    def __init__(self, machine: Machine, ledger: Ledger, stored: Stored) -> None:
        self._plan = machine.plan
        self._ledger = ledger
        self._stored = stored

    def faults(self) -> Iterator[str]:
        """A line for each thing that is wrong."""
        yield from self._idempotency()
        yield from self._duplicates()
        yield from self._starts_of_events()
        yield from self._replays()
        yield from self._ticks()
        yield from self._run_events()
        yield from self._usage()

    def _idempotency(self) -> Iterator[str]:
        for key, runs in self._ledger.keyed.items():
            if len(runs) > 1:
                yield f"starts with the key {key} led to {runs}"
        for run, news in self._ledger.new.items():
            if news > 1:
                yield f"{news} starts said that they started run {run}"
        for (wf, idem), same in _grouped(self._stored.runs.values(), "wf", "idem").items():
            if idem is not None and len(same) > 1:
                yield f"workflow {wf} has {len(same)} runs of key {idem}"

    def _duplicates(self) -> Iterator[str]:
        by_id = defaultdict(list)
        for sent in self._ledger.sent:
            if sent.event_id is not None:
                by_id[sent.tenant, sent.event_id].append(sent.accepted)
        for key, answers in by_id.items():
            firsts = [answer for answer in answers if not answer.duplicate]
            if len(firsts) != 1 or len({(answer.id, answer.runs) for answer in answers}) != 1:
                yield f"event {key} was answered {answers}"

    def _starts_of_events(self) -> Iterator[str]:
        """Each event has started each workflow that it triggers once."""
        started = Counter(
            (run["event"], run["workflow"]) for run in self._stored.runs.values() if run["source"] == "event"
        )
        yield from (f"event {key} started {n} runs" for key, n in started.items() if n > 1)
        for sent in self._ledger.sent:
            if sent.accepted.duplicate:
                continue
            hit = {w.name for w in self._plan.workflows if _triggers(w, sent.name, sent.data)}
            found = {self._stored.runs[run]["workflow"] for run in sent.accepted.runs if run in self._stored.runs}
            if found - hit or hit - found - self._ledger.touched:
                yield f"event {sent} started {found}, its triggers are those of {hit}"

    def _replays(self) -> Iterator[str]:
        for replay, (run, sid, completed) in self._ledger.replays.items():
            if sid is None:
                continue
            mine = {step["sid"]: step for step in self._stored.steps[replay]}
            for step in self._stored.steps[run]:
                if step["sid"] not in completed:
                    continue
                copy = mine.get(step["sid"])
                if step["status"] == "c" and (copy is None or copy["output"] != step["output"]):
                    yield f"replay {replay} of {run} from {sid} has {copy} for {step}"

    def _ticks(self) -> Iterator[str]:
        runs = [run for run in self._stored.runs.values() if run["source"] == "cron"]
        if len(runs) != len(self._stored.fires):
            yield f"{len(runs)} runs of cron for {len(self._stored.fires)} ticks"

    def _run_events(self) -> Iterator[str]:
        """Each end that something listens to has one event, and that has started the watcher once, if it may."""
        watcher = next((each for each in self._plan.workflows if each.name == WATCHER), None)
        events: Counter[tuple[UUID, str]] = Counter(
            (event["run"], event["name"]) for event in self._stored.events.values() if event["source"] == "platform"
        )
        for run, end in self._stored.ends.items():
            name = f"runr/run.{end['status']}"
            heard = watcher is not None and name in watcher.triggers
            if heard and self._ledger.retried[run] == 0 and events[run, name] != 1:
                yield f"{events[run, name]} events {name} of run {run}"
        if events and watcher is None and not self._has_listening_waits():
            yield f"nobody listens to {events}"
        if watcher is None or watcher.name in self._ledger.touched:
            return
        started = Counter(run["event"] for run in self._stored.runs.values() if run["workflow"] == WATCHER)
        for event in self._stored.events.values():
            if event["name"] not in watcher.triggers:
                continue
            wanted = 0 if self._stored.runs[event["run"]]["workflow"] == WATCHER else 1
            if started[event["id"]] != wanted and event["id"] not in self._replayed():
                yield f"event {event['name']} of run {event['run']} started {started[event['id']]} watchers"

    def _has_listening_waits(self) -> bool:
        steps = (step for workflow in self._plan.workflows for step in workflow.steps)
        return any(isinstance(step, Await) and step.event.startswith("runr/") for step in steps)

    def _replayed(self) -> set[UUID]:
        """Events of runs that were replayed."""
        return {self._stored.runs[run]["event"] for run, *_ in self._ledger.replays.values()}

    def _usage(self) -> Iterator[str]:
        """Runs and executions of steps are counted exactly."""
        runs = Counter(run["workflow"] for run in self._stored.runs.values())
        for workflow, n in runs.items():
            if self._stored.usage.get((workflow, "r"), 0) != n:
                yield f"{self._stored.usage.get((workflow, 'r'), 0)} runs of {workflow} were counted, there are {n}"
        steps: Counter[str] = Counter()
        for run, row in self._stored.runs.items():
            failing = {attempt["sid"] for attempt in self._stored.attempts[run] if attempt["sid"] is not None}
            steps[row["workflow"]] += sum(attempt["sid"] is not None for attempt in self._stored.attempts[run])
            for step in self._stored.steps[run]:
                failed = step["kind"] == "r" and step["status"] != "c" and step["sid"] in failing
                steps[row["workflow"]] += not failed
        for workflow in runs.keys() - self._not_as_stored():
            if self._stored.usage.get((workflow, "s"), 0) != steps[workflow]:
                counted = self._stored.usage.get((workflow, "s"), 0)
                yield f"{counted} executions of steps of {workflow} were counted, there were {steps[workflow]}"

    def _not_as_stored(self) -> set[str]:
        """Workflows whose runs have lost steps by a retry, or have been given some by a replay."""
        runs = [
            *self._ledger.retried,
            *(replay for replay, of in self._ledger.replays.items() if of.step is not None),
        ]
        return {self._stored.runs[run]["workflow"] for run in runs}


def _triggers(workflow: Workflow, name: str, data: Mapping[str, Any]) -> bool:
    if name not in workflow.triggers:
        return False
    above = workflow.triggers[name]
    return above is None or data["x"] > above


def _grouped(rows: Iterable[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found
