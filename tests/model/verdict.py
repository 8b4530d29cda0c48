"""Whether what became of an episode is what its scripts say: the model's equality, once everything has ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from services.core.domain.retry import BASE_MS
from services.core.runtime.ids import ulid_text
from tests.model.acknowledged import Acknowledged
from tests.model.ledger import Ledger
from tests.model.machine import Machine
from tests.model.script import Await, Invoke, Nap, Send, Step, Work, Workflow, output_of
from tests.model.stored import Row, Stored, elapsed_ms, payload, read, shown
from tests.support.invariants import violations

_LEAST_JITTER = 0.8
_LOST = ("WorkerLost", "WorkerDisconnected")
_SLACK_MS = 5_000  # an event is looked up before it is stored
_MAKING = timedelta(seconds=1)  # within which a run is created
_SOON_MS = 10_000  # within which schedulers carry out what its executor did not


async def judge(machine: Machine, ledger: Ledger) -> list[str]:
    """Everything that is not as it must be."""
    faults = [*ledger.faults, *machine.functions.witness.faults]
    faults += [f"an executor ended by itself: {each.fault!r}" for each in machine.executors if each.fault is not None]
    faults += await violations(machine.url, accepted=ledger.runs)
    async with machine.database.connection() as connection:
        stored = await read(connection)
    faults += Verdict(machine, ledger, stored).faults()
    return [*faults, *Acknowledged(machine, ledger, stored).faults()]


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

    # ---- one run

    def _run(self, run: UUID, row: Row, workflow: Workflow) -> Iterator[str]:
        memo = [step for step in self._stored.steps[run] if step["status"] in ("c", "f")]
        order = [step["sid"] for step in memo]
        if not workflow.begins_so(order):
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
        yield from self._attempts(run, row, workflow)

    def _outcome(self, run: UUID, end: Row, workflow: Workflow, memo: list[Row]) -> Iterator[str]:
        status, error = end["status"], json.loads(end["error"] or "{}")
        stopped = self._fatal(workflow, memo)
        match status:
            case "completed":
                if len(memo) < len(workflow.steps) or stopped:
                    yield f"completed after {[step['sid'] for step in memo]}"
                saw = [(s["sid"], *payload(s)) for s in memo]
                if json.loads(end["output"]) != json.loads(output_of(workflow.name, saw)):
                    yield f"its output is {end['output']}, its memory {saw}"
            case "failed":
                attempts = self._failed_attempts(run, workflow)
                if not stopped and attempts < workflow.attempts:
                    yield f"failed with {error} after {attempts} of {workflow.attempts} attempts"
            case "timed_out" if workflow.timeout_ms is None or elapsed_ms(
                self._stored.runs[run]["created_at"], end["ended"]
            ) < (workflow.timeout_ms + (self._delay_ms(run) or 0)):
                yield f"timed out within {workflow.timeout_ms} ms"
            case "cancelled" if not self._may_be_cancelled(run, workflow):
                yield "cancelled by nobody"

    def _fatal(self, workflow: Workflow, memo: list[Row]) -> bool:
        """Whether the last group of steps that came to its end has a failure that is not caught."""
        found = {step["sid"]: step["status"] for step in memo}
        ended = [group for group in workflow.groups if all(step.id in found for step in group)]
        return bool(ended) and any(
            found[step.id] == "f" and isinstance(step, Work) and step.fatal for step in ended[-1]
        )

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
        created, within_ms = self._stored.runs[run]["created_at"], workflow.cancel_within_ms
        late_ms = float("inf") if within_ms is None or self._ledger.retried[run] else within_ms
        late_ms += self._ledger.delays.get(run, 0) + self._created_within_ms(run)
        return any(
            ulid_text(run) in event["effects"]
            and elapsed_ms(created, event["received_at"]) <= late_ms + self._accepted_within_ms(event) + _SLACK_MS
            for event in self._stored.events.values()
            if event["name"] == workflow.cancelled_by
        )

    def _accepted_within_ms(self, event: Row) -> int:
        """How much time may have passed between the look at what an event meets and its being stored."""
        return self._machine.time.just_moved_ms(event["received_at"], _MAKING)

    def _created_within_ms(self, run: UUID) -> float:
        """How much time may have passed while the run was created: it was moved meanwhile."""
        created, known_ms = self._stored.runs[run]["created_at"], self._ledger.known.get(run)
        if known_ms is None:  # made by the engine itself
            return self._machine.time.moved_ms(created, _MAKING)
        return max(0.0, known_ms - float(created.timestamp()) * 1000)

    # ---- one step

    def _step(self, run: UUID, row: Row, memo: Row, workflow: Workflow) -> Iterator[str]:
        step = workflow.step(memo["sid"])
        seen = self._witness.shown.get((run, step.id))
        if seen is not None and json.loads(seen) != shown(memo):
            yield f"stored as {shown(memo)}, shown as {seen}"
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
        fails = step.fails_for_good(workflow.attempts)
        # A failure that was answered too late, or that a retry has dropped, is not there for the step to fail for good.
        excused = not step.fails and self._losses(run) + self._witness.lives[run] > 0
        if (memo["status"] == "f") != fails and not excused:
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
            if elapsed_ms(memo["t0"], memo["t1"]) < step.timeout_ms:
                yield f"timed out within {step.timeout_ms} ms"
            if self._ledger.retried[child] == 0 and elapsed_ms(end["ended"], memo["t1"]) > _SOON_MS:
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
        """A body runs once, and once more for each failure and each time that its run was taken from its holder.

        Of a run that was retried, an executor that has not heard of its end may begin one for nothing.
        """
        losses = self._losses(run)
        for step in workflow.steps:
            for life in range(self._witness.lives[run] + 1):
                body = (run, step.id, life)
                bodies, failed = self._witness.bodies[body], self._witness.failures[body]
                stale = int(life > 0 and self._machine.plan.unheard > 0)
                if bodies > 1 + failed + losses + stale:
                    yield f"step {step.id} ran {bodies} times, with {failed} failures and {losses} losses of the run"

    def _losses(self, run: UUID) -> int:
        """How often the run was taken from its holder, or given back by one that stopped."""
        attempts = sum(any(lost in row["error"] for lost in _LOST) for row in self._stored.attempts[run])
        return attempts + self._ledger.interrupted[run]

    def _attempts(self, run: UUID, row: Row, workflow: Workflow) -> Iterator[str]:
        """Failed attempts of a step are counted without a gap, and come no sooner than their backoff."""
        before: dict[str | None, Row] = {}
        for attempt in self._stored.attempts[run]:
            sid, k = attempt["sid"], attempt["k"]
            last = before.get(sid)
            if sid is not None and k != 1 and (last is None or last["k"] != k - 1):
                yield f"attempt {k} of step {sid} follows {last}"
            if sid is not None and k > 1 and last is not None:
                after_ms = elapsed_ms(last["t1"], attempt["t1"])
                if after_ms < _pause_ms(workflow.step(sid), k - 1):
                    yield f"attempt {k} of step {sid} came {after_ms} ms after the one before"
            before[sid] = attempt
        delay = self._delay_ms(run)
        started = self._stored.ends[run]["started"]
        if delay is not None and started is not None and elapsed_ms(row["created_at"], started) < delay:
            yield f"started {elapsed_ms(row['created_at'], started)} ms after its creation, not {delay}"

    def _delay_ms(self, run: UUID) -> int | None:
        """By how much it was to start later. A retry of one that was cancelled before begins at once."""
        return self._ledger.delays.get(run) if self._ledger.retried[run] == 0 else None


def _pause_ms(step: Step, failed: int) -> float:
    """How long a step that has failed so often waits at least for its next attempt."""
    if isinstance(step, Work) and step.retry_after_ms is not None:
        return step.retry_after_ms
    return BASE_MS * float(2 ** (failed - 1)) * _LEAST_JITTER
