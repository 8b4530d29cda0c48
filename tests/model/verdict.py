"""Whether what became of an episode is what its scripts say: the model's equality, once everything has ended."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import asyncpg

from services.core.domain.retry import BASE_MS
from services.core.runtime.ids import ulid_text
from tests.model.ledger import Ledger
from tests.model.machine import Machine
from tests.model.script import Await, Invoke, Nap, Send, Step, Work, Workflow, output_of
from tests.support.invariants import violations

_LEAST_JITTER = 0.8
_LOST = "WorkerLost"
_SOON_MS = 10_000  # within which schedulers carry out what its executor did not

Row = Mapping[str, Any]


async def judge(machine: Machine, ledger: Ledger) -> list[str]:
    """Everything that is not as it must be."""
    faults = [*ledger.faults, *machine.functions.witness.faults]
    faults += [f"an executor ended by itself: {each.fault!r}" for each in machine.executors if each.fault is not None]
    faults += await violations(machine.url, accepted=ledger.runs)
    async with machine.database.connection() as connection:
        verdict = Verdict(machine, ledger, await read(connection))
    return [*faults, *verdict.faults()]


class Stored:
    """Everything that the database holds of runs, by run."""

    def __init__(self, tables: Mapping[str, list[Row]]) -> None:
        self.runs = {row["id"]: row for row in tables["runs"]}
        self.ends = {row["run"]: row for row in tables["ends"]}
        self.events = {row["id"]: row for row in tables["events"]}
        self.fires = tables["cron_fire"]
        self.steps = _by_run(tables["steps"])
        self.attempts = _by_run(tables["attempts"])


async def read(connection: asyncpg.Connection) -> Stored:
    """Read it in one snapshot."""
    queries = {
        "runs": "select r.*, w.name as workflow, coalesce(r.event_data, e.data) as data from rt.runs r "
        "join rt.workflows w on w.id = r.wf left join rt.events e on e.tenant = r.tenant and e.id = r.event",
        "ends": "select * from rt.ends",
        "events": "select * from rt.events",
        "cron_fire": "select * from rt.cron_fire",
        "steps": "select *, kind::text as kind, status::text as status from rt.steps order by run, seq",
        "attempts": "select * from rt.attempts order by run, n",
    }
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        return Stored({table: list(map(dict, await connection.fetch(query))) for table, query in queries.items()})


def _by_run(rows: list[Row]) -> dict[UUID, list[Row]]:
    found: dict[UUID, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["run"]].append(row)
    return found


class Verdict:
    """Holds what is stored against the scripts and against what was acknowledged."""

    def __init__(self, machine: Machine, ledger: Ledger, stored: Stored) -> None:
        self._machine = machine
        self._ledger = ledger
        self._stored = stored
        self._witness = machine.functions.witness

    def faults(self) -> Iterator[str]:
        """A line for each thing that is wrong."""
        for run, row in self._stored.runs.items():
            workflow = self._machine.workflow(row["workflow"])
            named = f"run {run} of {row['workflow']}: "
            yield from (named + fault for fault in self._run(run, row, workflow))
        yield from self._idempotency()
        yield from self._duplicates()
        yield from self._starts_of_events()
        yield from self._replays()
        yield from self._ticks()

    # ---- one run

    def _run(self, run: UUID, row: Row, workflow: Workflow) -> Iterator[str]:
        memo = [step for step in self._stored.steps[run] if step["status"] in ("c", "f")]
        order = [step["sid"] for step in memo]
        if order != [step.id for step in workflow.steps[: len(order)]]:
            yield f"steps {order} are not the beginning of its script"
            return
        end = self._stored.ends.get(run)
        if end is None:
            yield "it has not ended"
            return
        yield from self._outcome(run, end, workflow, memo)
        for step in memo:
            if step["t1"] > end["ended"]:
                yield f"step {step['sid']} was stored at {step['t1']}, after the end at {end['ended']}"
            yield from (f"step {step['sid']}: {fault}" for fault in self._step(run, row, step, workflow))
        yield from self._executions(run, workflow)
        yield from self._attempts(run, row)

    def _outcome(self, run: UUID, end: Row, workflow: Workflow, memo: list[Row]) -> Iterator[str]:
        status, error = end["status"], json.loads(end["error"] or "{}")
        stopped = self._fatal(workflow, memo)
        match status:
            case "completed":
                if len(memo) < len(workflow.steps) or stopped:
                    yield f"completed after {[step['sid'] for step in memo]}"
                saw = [(s["sid"], *_payload(s)) for s in memo]
                if json.loads(end["output"]) != json.loads(output_of(workflow.name, saw)):
                    yield f"its output is {end['output']}, its memory {saw}"
            case "failed":
                attempts = self._failed_attempts(run, workflow)
                if not stopped and attempts < workflow.attempts:
                    yield f"failed with {error} after {attempts} of {workflow.attempts} attempts"
            case "timed_out" if workflow.timeout_ms is None or _ms(
                self._stored.runs[run]["created_at"], end["ended"]
            ) < (workflow.timeout_ms + self._ledger.delays.get(run, 0)):
                yield f"timed out within {workflow.timeout_ms} ms"
            case "cancelled" if not self._may_be_cancelled(run, workflow):
                yield "cancelled by nobody"

    def _fatal(self, workflow: Workflow, memo: list[Row]) -> bool:
        if not memo or memo[-1]["status"] != "f":
            return False
        step = workflow.step(memo[-1]["sid"])
        return isinstance(step, Work) and step.fatal

    def _failed_attempts(self, run: UUID, workflow: Workflow) -> int:
        """The most failed function attempts that the run had in a row."""
        numbers = [row["k"] for row in self._stored.attempts[run] if row["sid"] is None]
        return max(numbers, default=0)

    def _may_be_cancelled(self, run: UUID, workflow: Workflow) -> bool:
        parent = self._stored.runs[run]["parent"]
        if run in self._ledger.cancelled:
            return True
        if parent is not None and (
            self._ledger.retried[parent] or self._stored.ends[parent]["status"] in ("cancelled", "timed_out")
        ):
            return True
        return any(ulid_text(run) in row["effects"] for row in self._stored.events.values() if row["name"] == "stop")

    # ---- one step

    def _step(self, run: UUID, row: Row, memo: Row, workflow: Workflow) -> Iterator[str]:
        step = workflow.step(memo["sid"])
        shown = self._witness.shown.get((run, step.id))
        if shown is not None and json.loads(shown) != _shown(memo):
            yield f"stored as {_shown(memo)}, shown as {shown}"
        match step:
            case Work():
                yield from self._work(run, memo, step, workflow)
            case Nap():
                if memo["kind"] != "s" or memo["status"] != "c":
                    yield f"a sleep that is {memo['kind']} {memo['status']}"
            case Await():
                yield from self._await(run, row, memo, step)
            case Invoke():
                yield from self._invoke(memo, step)
            case Send():
                yield from self._send(run, row, memo, step)

    def _work(self, run: UUID, memo: Row, step: Work, workflow: Workflow) -> Iterator[str]:
        fails = step.fails or step.failures >= workflow.attempts
        if (memo["status"] == "f") != fails:
            yield f"is {memo['status']}, and its script says {step}"
        if memo["status"] == "c" and json.loads(memo["output"])["token"] not in self._tokens(run, step.id):
            yield f"was never answered {memo['output']}"
        elif memo["status"] == "c" and json.loads(memo["output"])["token"] in self._witness.late:
            yield f"has {memo['output']}, answered by an invocation of before the retry"

    def _tokens(self, run: UUID | None, sid: str) -> set[str]:
        """What bodies of the step have answered, in this run or in one that it replays."""
        found: set[str] = set()
        while run is not None:
            found |= self._witness.answered.get((run, sid), set())
            run = self._stored.runs[run]["replay_of"]
        return found

    def _await(self, run: UUID, row: Row, memo: Row, step: Await) -> Iterator[str]:
        if memo["kind"] != "e" or memo["status"] != "c":
            yield f"a wait that is {memo['kind']} {memo['status']}"
        elif memo["event"] is not None:
            event = self._stored.events[memo["event"]]
            if event["name"] != step.event or not step.takes(json.loads(event["data"]), json.loads(row["data"])):
                yield f"was resumed by {event['name']} {event['data']}, and waits for {step}"
            seen = json.loads(memo["output"])
            if (seen["id"], seen["data"]) != (ulid_text(event["id"]), json.loads(event["data"])):
                yield f"was given {seen}, the event is {event}"
            since = memo["t0"] if step.lookback is None else None
            if since is not None and event["received_at"] < since and row["replay_of"] is None:
                yield f"opened at {since}, resumed by an event of {event['received_at']}"
        elif step.lookback == "run" and row["replay_of"] is None:
            yield from self._missed(run, row, memo, step)

    def _missed(self, run: UUID, row: Row, memo: Row, step: Await) -> Iterator[str]:
        """A wait that looked back to the start of its run and ended by its timeout: was there an event for it?"""
        had = {each["event"] for each in self._stored.steps[run]} | {row["event"]}
        for event in self._stored.events.values():
            if event["tenant"] != row["tenant"] or event["name"] != step.event or event["id"] in had:
                continue
            if row["created_at"] < event["received_at"] < memo["t0"] and step.takes(
                json.loads(event["data"]), json.loads(row["data"])
            ):
                yield f"timed out at {memo['t1']}, though it looked back and event {event['id']} had come"

    def _invoke(self, memo: Row, step: Invoke) -> Iterator[str]:
        if memo["kind"] != "i":
            yield f"an invoke that is {memo['kind']}"
            return
        child, name = memo["child"], None if memo["error"] is None else json.loads(memo["error"])["name"]
        if child is None:
            if name != "InvokeError" or step.workflow not in self._ledger.touched:
                yield f"has no child: {memo}"
            return
        end = self._stored.ends.get(child)
        if end is None or self._stored.runs[child]["workflow"] != step.workflow:
            yield f"its child {child} is {end} of {self._stored.runs.get(child)}"
        elif name == "InvokeTimeout":
            if _ms(memo["t0"], memo["t1"]) < step.timeout_ms:
                yield f"timed out within {step.timeout_ms} ms"
            if self._ledger.retried[child] == 0 and _ms(end["ended"], memo["t1"]) > _SOON_MS:
                yield f"timed out at {memo['t1']}, its child {child} had ended at {end['ended']}"
        elif self._ledger.retried[child] == 0:
            if (memo["status"] == "c") != (end["status"] == "completed"):
                yield f"is {memo['status']}, its child {child} {end['status']}"
            elif memo["status"] == "c" and memo["output"] != end["output"]:
                yield f"got {memo['output']}, its child {child} returned {end['output']}"

    def _send(self, run: UUID, row: Row, memo: Row, step: Send) -> Iterator[str]:
        if memo["status"] != "c" or memo["kind"] != "n":
            yield f"a send that is {memo['kind']} {memo['status']}"
            return
        ids = json.loads(memo["output"])["ids"]
        by_id = {ulid_text(id): event for id, event in self._stored.events.items()}
        sent = [by_id.get(id) for id in ids]
        if len(set(ids)) != len(step.events) or [event and event["name"] for event in sent] != list(step.events):
            yield f"sent {step.events}, its events {ids} are {sent}"
        of_run = [e for e in self._stored.events.values() if e["run"] == run and e["source"] == "workflow"]
        expected = sum(len(each.events) for each in self._sends(run))
        if row["replay_of"] is None and len(of_run) != expected:
            yield f"{len(of_run)} events were sent by the run, its steps say {expected}"

    def _sends(self, run: UUID) -> Iterator[Send]:
        workflow = self._machine.workflow(self._stored.runs[run]["workflow"])
        for memo in self._stored.steps[run]:
            step: Step = workflow.step(memo["sid"])
            if isinstance(step, Send) and memo["status"] == "c":
                yield step

    # ---- executions and attempts

    def _executions(self, run: UUID, workflow: Workflow) -> Iterator[str]:
        """A body runs once, and once more for each failure and each time that its run was taken from its holder."""
        losses = sum(_LOST in row["error"] for row in self._stored.attempts[run])
        losses += self._ledger.retried[run] + self._ledger.interrupted[run]
        for step in workflow.steps:
            bodies, failed = self._witness.bodies[run, step.id], self._witness.failed[run, step.id]
            if bodies > 1 + failed + losses:
                yield f"step {step.id} ran {bodies} times, with {failed} failures and {losses} losses of the run"

    def _attempts(self, run: UUID, row: Row) -> Iterator[str]:
        """Failed attempts of a step are counted without a gap, and come no sooner than their backoff."""
        before: dict[str | None, Row] = {}
        for attempt in self._stored.attempts[run]:
            sid, k = attempt["sid"], attempt["k"]
            last = before.get(sid)
            if sid is not None and k != 1 and (last is None or last["k"] != k - 1):
                yield f"attempt {k} of step {sid} follows {last}"
            if sid is not None and k > 1 and last is not None:
                backoff = BASE_MS * 2 ** (k - 2) * _LEAST_JITTER
                if _ms(last["t1"], attempt["t1"]) < backoff:
                    yield f"attempt {k} of step {sid} came {_ms(last['t1'], attempt['t1'])} ms after the one before"
            before[sid] = attempt
        delay = self._ledger.delays.get(run) if self._ledger.retried[run] == 0 else None
        started = self._stored.ends[run]["started"]
        if delay is not None and started is not None and _ms(row["created_at"], started) < delay:
            yield f"started {_ms(row['created_at'], started)} ms after its creation, not {delay}"

    # ---- what was acknowledged

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
            hit = {w.name for w in self._machine.plan.workflows if _triggers(w, sent.name, sent.data)}
            found = {self._stored.runs[run]["workflow"] for run in sent.accepted.runs if run in self._stored.runs}
            if found - hit or hit - found - self._ledger.touched:
                yield f"event {sent} started {found}, its triggers are those of {hit}"

    def _replays(self) -> Iterator[str]:
        for replay, (run, sid) in self._ledger.replays.items():
            if sid is None:
                continue
            mine = {step["sid"]: step for step in self._stored.steps[replay]}
            for step in self._stored.steps[run]:
                if step["sid"] == sid:
                    break
                copy = mine.get(step["sid"])
                if step["status"] == "c" and (copy is None or copy["output"] != step["output"]):
                    yield f"replay {replay} of {run} from {sid} has {copy} for {step}"

    def _ticks(self) -> Iterator[str]:
        runs = [run for run in self._stored.runs.values() if run["source"] == "cron"]
        if len(runs) != len(self._stored.fires):
            yield f"{len(runs)} runs of cron for {len(self._stored.fires)} ticks"


def _triggers(workflow: Workflow, name: str, data: Mapping[str, Any]) -> bool:
    if name not in workflow.triggers:
        return False
    above = workflow.triggers[name]
    return above is None or data["x"] > above


def _grouped(rows: Any, *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found


def _payload(memo: Row) -> tuple[str, Any]:
    if memo["status"] == "c":
        return "completed", json.loads(memo["output"] or "null")
    return "failed", json.loads(memo["error"])


def _shown(memo: Row) -> dict[str, Any]:
    status, payload = _payload(memo)
    return {"status": status, "output" if status == "completed" else "error": payload}


def _ms(since: Any, until: Any) -> float:
    return float((until - since).total_seconds() * 1000)
