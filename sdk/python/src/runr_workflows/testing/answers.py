"""What the ops of one answer do to a run, in order (protocol section 3, engine section 5)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..duration import parse_duration
from ..errors import StepArgumentError
from ..event_names import listener_fault, sender_fault
from ..expression import ExpressionError, condition, parse, parse_match
from .events import Events
from .script import refuse_faults
from .stored import Error, StoredStep, TestRun, time_text
from .world import DEFAULT_WAIT_MS, MAX_STEPS, OUTPUT_BYTES, World

Op = Mapping[str, Any]
Stub = Callable[[dict[str, Any]], Any]
"""Stands for an invoked workflow: its output for the data, or what it raises."""

MOST_REPEATS = 3
BACKOFF_MS = 2_000
MOST_BACKOFF_MS = 600_000
_DOUBLINGS = 9
_WORKFLOW = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_KINDS = {"step_completed": "run", "step_failed": "run"}


class _BadField(Exception):
    """A field of the workflow's author breaks a rule: the step is memoized as failed."""

    def __init__(self, message: str, name: str = "InvalidStep") -> None:
        super().__init__(message)
        self.name = name


class Answers:
    """Applies answers. `waits` is told of each wait that has been opened."""

    def __init__(
        self, world: World, events: Events, stubs: Mapping[str, Stub], waits: Callable[[TestRun[Any], StoredStep], None]
    ) -> None:
        self._world = world
        self._events = events
        self._stubs = stubs
        self._waits = waits

    def apply(self, run: TestRun[Any], ops: Sequence[Op]) -> None:
        """The ops of one answer."""
        fresh = [op for op in ops if "id" not in op or not self._is_memoized(run, op["id"])]
        if not fresh:
            self._strike(run, ops[0]["id"])
            return
        run._repeats = 0
        for op in fresh:
            if op["op"] == "run_completed":
                self._completed(run, op)
                return
            if op["op"] == "run_failed":
                self.function_failed(run, op["error"], op)
                return
            if op["id"] not in run.steps and run._memoized >= MAX_STEPS:
                message = f"step {op['id']!r} would be number {MAX_STEPS + 1} and a run has at most {MAX_STEPS} steps"
                self._fail(run, {"name": "LimitExceeded", "message": message})
                return
            if not self._step(run, op):
                return
        self._world.go_on(run)

    def function_failed(
        self, run: TestRun[Any], error: Error, op: Op | None = None, *, told: str = "run_failed"
    ) -> None:
        """A failed attempt of the function. `told` is what the timeline calls it."""
        asked = op or {}
        run._failures += 1
        number = run._failures
        run.attempts.append(self._attempt(number, error))
        is_final = bool(asked.get("non_retriable")) or number >= run._max_attempts
        if not is_final or told != "run_failed":
            self._world.tell(run, told, None, "failed" if is_final else "queued", attempt=number, error=error)
        if is_final:
            self._world.end(run, "failed", error=error, attempt=number)
        else:
            self._world.pause(run, self._retry_at(asked, number))

    def _step(self, run: TestRun[Any], op: Op) -> bool:
        """Applies the op of a step. Whether the run goes on at once, with the next op or another invocation."""
        if op["op"] == "step_failed":
            return self._step_failed(run, op)
        run._failures = 0
        step = self._new(run, op)
        if step.kind != "run":
            refuse_faults(run._scripts, run.workflow, step.id, step.kind)
        try:
            return self._APPLY[op["op"]](self, run, step, op)
        except _BadField as fault:
            error = {"name": fault.name, "message": f"{op['op']} {json.dumps(op['id'])}: {fault}"}
            self._store(run, step, op["op"], error=error)
            self._world.go_on(run)
            return False

    def _new(self, run: TestRun[Any], op: Op) -> StoredStep:
        kind = _KINDS.get(op["op"]) or str(op["op"])
        found = run.steps.get(op["id"]) or StoredStep(op["id"], op["name"], kind, started_ms=self._world.now_ms)
        found.input = op.get("input", found.input)
        return found

    def _store(
        self, run: TestRun[Any], step: StoredStep, op: str, *, output: Any = None, error: Error | None = None
    ) -> None:
        """A step has its result."""
        run.steps[step.id] = step
        step.status = "completed" if error is None else "failed"
        step.output, step.error, step.ended_ms, step.wake_ms = output, error, self._world.now_ms, None
        self._world.tell(run, op, step.id, step.status, attempt=max(len(step.attempts), 1), error=error)

    def _step_completed(self, run: TestRun[Any], step: StoredStep, op: Op) -> bool:
        output = _payload(op.get("output"), "output")
        step.attempts.append(self._attempt(len(step.attempts) + 1, None, step.id))
        self._store(run, step, "step_completed", output=output)
        return True

    def _step_failed(self, run: TestRun[Any], op: Op) -> bool:
        step, error = self._new(run, op), op["error"]
        number = len(step.attempts) + 1
        step.attempts.append(self._attempt(number, error, step.id))
        if op.get("non_retriable") or number >= op.get("max_attempts", run._max_attempts):
            run._failures = 0
            self._store(run, step, "step_failed", error=error)
            return True
        run.steps[step.id] = step
        step.status, step.wake_ms = "retrying", self._retry_at(op, number)
        self._world.tell(run, "step_failed", step.id, "retrying", attempt=number, error=error)
        self._world.pause(run, step.wake_ms)
        return False

    def _sleep(self, run: TestRun[Any], step: StoredStep, op: Op) -> bool:
        now_ms = self._world.now_ms
        if op.get("until") is not None:
            due_ms = _unix_ms(op["until"])
            step.input = {"until_ms": due_ms}
        else:
            length = _duration(op, "duration")
            step.input = {"duration_ms": length}
            due_ms = now_ms + (length or 0)
        if due_ms <= now_ms:
            self._store(run, step, "sleep")
            return True
        step.wake_ms = due_ms
        self._world.open(run, step, "sleeping", due_ms)
        return False

    def _wait_for_event(self, run: TestRun[Any], step: StoredStep, op: Op) -> bool:
        fault = listener_fault(op["event"])
        if fault is not None:
            raise _BadField(f"event {json.dumps(op['event'])}: {fault}")
        for field, read in (("match", parse_match), ("if", parse)):
            _check(op, field, read)
        holds = condition(op.get("match"), op.get("if"))
        lookback = op.get("lookback")
        since_ms = run._created_ms if lookback == "run" else None
        if since_ms is None and lookback is not None:
            since_ms = self._world.now_ms - (_duration(op, "lookback") or 0)
        shown = {"event": op["event"], "if": _shown(op), "timeout_ms": _duration(op, "timeout")}
        shown["lookback_ms"] = -1 if lookback == "run" else _duration(op, "lookback")
        step.input = {key: value for key, value in shown.items() if value is not None}
        self._open(run, step, {"event": op["event"], "condition": shown["if"]}, shown["timeout_ms"])
        if not self._events.wait(run, step, holds, since_ms):
            self._waits(run, step)
        return False

    def _invoke(self, run: TestRun[Any], step: StoredStep, op: Op) -> bool:
        name = op["workflow"]
        if not _WORKFLOW.fullmatch(name) or name in ("app", "sync"):
            raise _BadField(f"workflow {json.dumps(name)} is not a workflow's name")
        data = _payload(op.get("data") or {}, "data")
        timeout_ms = _duration(op, "timeout")
        stub = self._stubs.get(name)
        if stub is None and name not in self._world.workflows:
            message = f"workflow {name!r} does not exist in this project: it cannot be invoked"
            self._store(run, step, "invoke", error={"name": "InvokeError", "message": message})
            return True
        step.input = {"workflow": name, "data": data} | ({} if timeout_ms is None else {"timeout_ms": timeout_ms})
        self._open(run, step, {"event": None, "condition": None}, timeout_ms)
        if stub is not None:
            self._play(run, step, name, stub, data)
            return False
        seed = f"invoke {run.id} {step.id} {len(self._world.runs)}"
        child, is_new = self._world.start(name, self._events.make("runr/invoke", data, seed=seed), "invoke", parent=run)
        step.child = child.id
        if child not in run.children:
            run.children.append(child)
        if not is_new:
            self._join(run, step, child)
        return False

    def _join(self, run: TestRun[Any], step: StoredStep, child: TestRun[Any]) -> None:
        """The idempotency of an invoked workflow has led to a run that exists."""
        if child.ended:
            self._world.child_ended(run, step, child)
        elif self._world.waits_for(child, run):
            where = "this run itself" if child is run else "a run that waits for this one"
            message = f"the idempotency key of the invoked workflow leads to {where}: neither could ever go on"
            self._world.deliver(run, step, error={"name": "InvokeError", "message": message})

    def _play(self, run: TestRun[Any], step: StoredStep, name: str, stub: Stub, data: dict[str, Any]) -> None:
        try:
            output = _payload(stub(data), f"the output of the stub of {name!r}")
        except Exception as error:
            self._world.deliver(run, step, error={"name": "InvokeError", "message": f"the invoked run failed: {error}"})
        else:
            self._world.deliver(run, step, output)

    def _send_event(self, run: TestRun[Any], step: StoredStep, op: Op) -> bool:
        for place, event in enumerate(op["events"]):
            fault = sender_fault(event["name"])
            if fault is not None:
                raise _BadField(f"events[{place}].name: {fault}")
        step.input = {"events": [event["name"] for event in op["events"]]}
        sent = []
        self._store(run, step, "send_event")
        for place, event in enumerate(op["events"]):
            own = f"{run.id}/{step.id}/{place}"
            key = f"u:{event['id']}" if event.get("id") is not None else f"w:{own}"
            made = self._events.make(event["name"], event.get("data"), ts=event.get("ts"), seed=f"sent {own}")
            sent.append(self._events.accept(made, key).id)
        step.output = {"ids": sent}
        return not run.ended

    _APPLY: Mapping[str, Callable[[Answers, TestRun[Any], StoredStep, Op], bool]] = {
        "step_completed": _step_completed,
        "sleep": _sleep,
        "wait_for_event": _wait_for_event,
        "invoke": _invoke,
        "send_event": _send_event,
    }

    def _open(self, run: TestRun[Any], step: StoredStep, wait: dict[str, Any], timeout_ms: int | None) -> None:
        if timeout_ms == 0:
            raise _BadField("timeout: must be longer than zero")
        due_ms = self._world.now_ms + (DEFAULT_WAIT_MS if timeout_ms is None else timeout_ms)
        due_ms = min(due_ms, run._deadline_ms)
        step.wait = {**wait, "timeout_at": time_text(due_ms), "warnings": []}
        self._world.open(run, step, "waiting", due_ms)

    def _completed(self, run: TestRun[Any], op: Op) -> None:
        try:
            self._world.end(run, "completed", output=_payload(op.get("output"), "output"))
        except _BadField as fault:
            self._fail(run, {"name": fault.name, "message": f"run_completed: {fault}"})

    def _fail(self, run: TestRun[Any], error: Error) -> None:
        self.function_failed(run, error, {"non_retriable": True})

    def _strike(self, run: TestRun[Any], step_id: str) -> None:
        run._repeats += 1
        if run._repeats < MOST_REPEATS:
            self._world.go_on(run)
            return
        message = (
            f"the function answered step {step_id!r}, which has a stored result, {run._repeats} times in a row: "
            "code between steps must take the same way on every invocation"
        )
        self._fail(run, {"name": "NonDeterminismError", "message": message})

    def _is_memoized(self, run: TestRun[Any], step_id: str) -> bool:
        return step_id in run.steps and run.steps[step_id].memo is not None

    def _attempt(self, number: int, error: Error | None, step_id: str | None = None) -> dict[str, Any]:
        now = time_text(self._world.now_ms)
        times = {"started_at": now, "ended_at": now}
        return {"attempt": number, "error": error, "step_id": step_id, **times, "warning": None}

    def _retry_at(self, op: Op, number: int) -> int:
        """When the attempt after this one is made: the backoff without its jitter, or what the error says."""
        now_ms, after = self._world.now_ms, op.get("retry_after")
        if after is not None:
            try:
                return now_ms + parse_duration(after)
            except StepArgumentError:
                pass
            try:
                return max(now_ms, _unix_ms(after))
            except (TypeError, ValueError):
                pass
        return now_ms + min(BACKOFF_MS << min(number - 1, _DOUBLINGS), MOST_BACKOFF_MS)


def _payload(value: Any, what: str) -> Any:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass"))
    if size > OUTPUT_BYTES:
        raise _BadField(f"{what} has {size} bytes, {OUTPUT_BYTES} are allowed", "TooLarge")
    return value


def _check(op: Op, field: str, read: Callable[[object], object]) -> None:
    try:
        if op.get(field) is not None:
            read(op[field])
    except ExpressionError as error:
        raise _BadField(f"{field} {json.dumps(op[field])}: {error}") from None


def _duration(op: Op, field: str) -> int | None:
    value = op.get(field)
    if value is None or value == "run":
        return None
    try:
        return parse_duration(value)
    except StepArgumentError as error:
        raise _BadField(f"{field} {json.dumps(value)}: {error}") from None


def _shown(op: Op) -> str | None:
    """`match` and `if` as the engine shows them: one expression."""
    match, if_ = op.get("match"), op.get("if")
    if match is None:
        return if_
    joined = f"event.{match} == async.{match}"
    return joined if if_ is None else f"{joined} && ({if_})"


def _unix_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
