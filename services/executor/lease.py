"""A run that this process holds: its fences, and everything the next invocation needs, so that a hot step reads
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from services.core.domain.definition import Checkpoint
from services.core.domain.effect import RecordAttempt
from services.core.domain.envelope import EventInfo, RequestFrame, RunInfo, StepsFragment, error_json
from services.core.domain.gate_rule import NO_GATES, RunGates
from services.core.domain.matching import event_value
from services.core.domain.run import Limits, RunView, Status
from services.core.domain.transition import Decision
from services.core.engine.definitions import ProjectEntry, TenantDefinitions, WorkflowEntry
from services.core.runtime.ids import ulid_text
from services.core.store.commit_item import CommitItem, Committed, WaitRow
from services.executor.function_client import WrittenHeaders
from services.executor.worker_stream.invocation import LiveInvocation


@dataclass(slots=True, kw_only=True)
class Lease:
    """One held run. `epoch` and `rev` fence its commits, `mail` is the last delivery that was read. `reached_ms` (unix)
    is what the database's clock showed when the run was read: what was due then is due.

    `span` is the trace context of the invocation in progress: what it starts and sends goes below it. `unnamed`: the
    ids of events that it has sent are not known yet, so it does not go on. `affinity`: the worker's session that
    it was claimed for, or that executes it. `under_way`: the invocation over its stream, `reporting`: the numbers of
    its ops that are being committed, by step. `headers`: those of its last request, and the name, attempt and trace
    that they tell. `last_wait`: the last one that it has opened. `leave`: others wait for the room that it takes, so it
    is given back after its step.
    """

    run: UUID
    tenant: int
    epoch: int
    rev: int
    mail: int
    definitions: TenantDefinitions
    entry: WorkflowEntry
    project: ProjectEntry
    source: str
    event: EventInfo
    test: bool
    parent: UUID | None
    trace: str | None
    span: str | None = None
    started_ms: int
    reached_ms: int
    max_attempts: int
    steps: int = 0
    size: int = 0
    attempts: int = 0
    function_failures: int = 0
    repeats: int = 0
    unnamed: bool = False
    leave: bool = False
    gates: RunGates = NO_GATES
    memo: StepsFragment = field(default_factory=StepsFragment)
    failing: dict[str, int] = field(default_factory=dict)
    open_steps: dict[str, str] = field(default_factory=dict)
    last_wait: WaitRow | None = None
    invocations: int = 0
    affinity: str | None = None
    under_way: LiveInvocation | None = None
    reporting: Mapping[str, int] = field(default_factory=dict)
    headers: tuple[tuple[str, int, str | None], WrittenHeaders] | None = None
    _trigger: dict[str, Any] | None = None
    _run_text: str | None = None
    _frame: RequestFrame | None = None
    _one_by_one_until: int = 0

    @property
    def trigger(self) -> dict[str, Any]:
        """The trigger event as expressions see it; parsed when first needed."""
        if self._trigger is None:
            event = self.event
            self._trigger = event_value(id=event.id, name=event.name, data=event.data, ts=event.ts)
        return self._trigger

    def forget_parts(self) -> None:
        """Forget what may take much room, and is found again where it is wanted."""
        self._trigger = None
        self.last_wait = None

    @property
    def outdated(self) -> bool:
        """Whether the limits of its workflow were changed since its gates were found: it must be put before others."""
        return self.gates.version != self.entry.gate_version

    @property
    def gives_way(self) -> bool:
        """Whether it is given back after its step, although it could go on."""
        return self.leave or self.outdated

    @property
    def attempt(self) -> int:
        """`run.attempt`: attempts made of the step that runs again, or of the function (protocol section 4)."""
        return next(iter(self.failing.values())) if self.failing else self.function_failures

    def follow(self, definitions: TenantDefinitions) -> bool:
        """Go on with these definitions, endpoint and keys. False, and all stays: the run's workflow is not there."""
        if definitions is self.definitions:
            return True
        entry = definitions.workflows.get(self.entry.id)
        project = None if entry is None else definitions.projects.get(entry.project)
        if entry is None or project is None:
            return False
        self.definitions, self.entry, self.project = definitions, entry, project
        return True

    @property
    def run_text(self) -> str:
        """The run's id as functions see it, a ULID."""
        if self._run_text is None:
            self._run_text = ulid_text(self.run)
        return self._run_text

    def count_invocation(self) -> int:
        """The number of the invocation that begins now, from 1: a stream tells them apart by it (rulings S1)."""
        self.invocations += 1
        return self.invocations

    def told_by(self, step: str | None) -> tuple[int, int, int] | tuple[None, None, None]:
        """The op of a worker's stream that is being committed for this step: epoch, invocation and number."""
        number = None if step is None else self.reporting.get(step)
        if number is None or self.under_way is None:
            return None, None, None
        return self.epoch, self.under_way.key[2], number

    def checkpoint(self) -> Checkpoint | None:
        """What the next answer may hold; None: one op.

        After a failed attempt of the function as many steps go one by one as it may have executed and lost. So they
        run once more and not once more for each attempt, and the attempts are those of the step at fault.
        """
        checkpoint = self.entry.definition.checkpoint
        if checkpoint is None:
            return None
        if self.function_failures > 0:
            self._one_by_one_until = self.steps + checkpoint.max_steps
        return None if self.steps < self._one_by_one_until else checkpoint

    def request(self, ts: int, *, max_ops: int | None = None, budget_ms: int | None = None) -> str:
        """The text of the next execute request; `ts` is unix seconds, the rest as in `RequestFrame.request`."""
        if self._frame is None:
            run = RunInfo(
                id=self.run_text,
                attempt=0,
                started_at=self.started_ms,
                source=self.source,
                parent_run_id=None if self.parent is None else ulid_text(self.parent),
                test=self.test,
            )
            self._frame = RequestFrame(workflow=self.entry.name, run=run, event=self.event)
        return self._frame.request(
            attempt=self.attempt,
            steps_fragment=self.memo.steps,
            order_fragment=self.memo.order,
            ts=ts,
            max_ops=max_ops,
            budget_ms=budget_ms,
        )

    def view(self, limits: Limits) -> RunView:
        """What decisions see of the run."""
        return RunView(
            status=Status.RUNNING,
            max_attempts=self.max_attempts,
            function_failures=self.function_failures,
            repeats=self.repeats,
            steps=self.steps,
            state_bytes=self.size,
            gated=self.gates != NO_GATES,
            step_failures=self.failing,
            open_steps=self.open_steps,
            limits=limits,
        )

    def advance(self, decision: Decision, item: CommitItem, done: Committed) -> None:
        """Take over what was committed."""
        self.rev += 1
        self.mail = done.mail
        self.steps = decision.steps
        self.size += item.size
        self.attempts += len(item.attempt_rows)
        self.function_failures = decision.function_failures
        self.repeats = decision.repeats
        for wait in item.wait_rows:
            self.last_wait = wait
            if wait.sid is not None:
                self.open_steps[wait.sid] = wait.kind
        for row in item.step_rows:
            self.failing.pop(row.sid, None)
            self.open_steps.pop(row.sid, None)
            if row.status == "c":
                self.memo.completed(row.sid, row.output or "null")
            else:
                self.memo.failed(row.sid, row.error or error_json("Error", "the step failed"))
        for effect in decision.effects if item.attempt_rows else ():
            if isinstance(effect, RecordAttempt) and effect.step_id is not None and effect.step_id not in self.memo.ids:
                self.failing[effect.step_id] = effect.number
