"""From a decision to what is committed: effects become rows, fenced by the lease."""

from __future__ import annotations

from uuid import UUID, uuid4

from services.core.domain.effect import Effect, EndRun, Memoize, OpenWait, RecordAttempt, SendEvents, StartChild
from services.core.domain.envelope import error_json
from services.core.domain.matching import WaitKey, event_value, wait_key
from services.core.domain.op import OpError
from services.core.domain.run import Status
from services.core.domain.safe_text import utf8_size
from services.core.domain.transition import Decision
from services.core.engine.send_events import SendMark, sent_output
from services.core.engine.starts import cancel_waits, start_row
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.commit_item import AttemptRow, CommitItem, EndRow, MarkRow, StartRow, StepRow, WaitRow
from services.executor.lease import Lease

_INVOKED = "runr/invoke"
_MAX_MS = 2**31 - 1  # what the store's column takes: 24 days, longer than any request may last
_LETTERS = {status: status.value[0] for status in Status} | {Status.BLOCKED: "q"}
_NO_KEY = WaitKey(None, None, None, None, None)


def commit_item(
    lease: Lease, decision: Decision, ids: UlidFactory, *, executing: bool = False, told_s: float | None = None
) -> CommitItem:
    """All rows of one decision about one run. `executing`: other steps of it are being executed meanwhile; `told_s`:
    see `CommitItem`.
    """
    rows = _Rows(lease, ids)
    for effect in decision.effects:
        rows.add(effect, decision.status)
    return CommitItem(
        run=lease.run,
        tenant=lease.tenant,
        epoch=lease.epoch,
        rev=lease.rev,
        mail=lease.mail,
        keep=decision.status is Status.RUNNING,
        executing=executing and decision.status is Status.RUNNING,
        st=_LETTERS[decision.status],
        steps=decision.steps - lease.steps,
        size=rows.size,
        fn_att=decision.function_failures,
        nd=decision.repeats,
        uses=rows.uses,
        gates=lease.gates.present,
        step_rows=tuple(rows.steps),
        attempt_rows=tuple(rows.attempts),
        wait_rows=tuple(rows.waits),
        start_rows=tuple(rows.starts),
        mark_rows=tuple(rows.marks),
        end_row=rows.end,
        told_s=told_s,
    )


class _Rows:
    """Rows being collected."""

    def __init__(self, lease: Lease, ids: UlidFactory) -> None:
        self._lease = lease
        self._ids = ids
        self._sent: dict[str, str] = {}
        self.steps: list[StepRow] = []
        self.attempts: list[AttemptRow] = []
        self.waits: list[WaitRow] = []
        self.starts: list[StartRow] = []
        self.marks: list[MarkRow] = []
        self.end: EndRow | None = None
        self.size = 0
        """Bytes that the steps add to the memoized state."""
        self._opened = 0

    @property
    def uses(self) -> int:
        """Step executions to count: each attempt of a step, each sleep, wait, invoke and send (engine section 11)."""
        if not self.attempts:
            return self._opened + len(self.steps)
        failed = {row.sid for row in self.attempts if row.sid is not None}
        return self._opened + len(failed) + sum(row.sid not in failed for row in self.steps)

    def add(self, effect: Effect, status: Status) -> None:
        """The rows of one effect."""
        match effect:
            case Memoize():
                self.steps.append(self._step(effect))
            case RecordAttempt():
                self.attempts.append(self._attempt(effect))
            case OpenWait():
                self.waits.append(self._wait(effect))
                self._opened += effect.kind in "sec"
            case StartChild():
                self._start(effect)
            case SendEvents():
                self._send(effect)
            case EndRun():
                error = None if effect.error is None else _error(effect.error)
                self.end = EndRow(self._lease.run, status.value, effect.output, error)

    def _step(self, effect: Memoize) -> StepRow:
        lease = self._lease
        error = None if effect.error is None else _error(effect.error)
        output = effect.output if error is None else None
        self.size += utf8_size(output or error or "")
        return StepRow(
            lease.run,
            lease.tenant,
            effect.id,
            effect.seq,
            effect.name,
            effect.kind,
            "c" if error is None else "f",
            output,
            error,
            effect.input,
            lease.failing.get(effect.id, 0) + 1 if error is None else effect.attempts,
            min(effect.duration_ms, _MAX_MS),
        )

    def _attempt(self, effect: RecordAttempt) -> AttemptRow:
        lease = self._lease
        epoch, inv, op = lease.told_by(effect.step_id)
        return AttemptRow(
            run=lease.run,
            tenant=lease.tenant,
            n=lease.attempts + len(self.attempts),
            sid=effect.step_id,
            k=effect.number,
            error=_error(effect.error),
            note=effect.note,
            ms=min(effect.duration_ms, _MAX_MS),
            epoch=epoch,
            inv=inv,
            op=op,
        )

    def _wait(self, effect: OpenWait) -> WaitRow:
        lease = self._lease
        key = _NO_KEY if effect.event is None else wait_key(effect.event, effect.condition, lease.trigger)
        return WaitRow(
            run=lease.run,
            tenant=lease.tenant,
            id=uuid4(),
            kind=effect.kind,
            seq=effect.seq,
            sid=effect.id or None,
            name=effect.name or None,
            fields=effect.fields,
            event=effect.event,
            name_h=key.name_h,
            path=key.path,
            path_h=key.path_h,
            val_h=key.val_h,
            cond=key.condition,
            child=self._ids.new() if effect.kind == "c" else None,
            delay_ms=effect.delay_ms,
            at_ms=effect.at_ms,
            arming=effect.lookback_ms is not None,
            lookback_ms=effect.lookback_ms,
        )

    def _start(self, effect: StartChild) -> None:
        """The child that the wait just added is for. That the workflow can be started was checked before the
        decision.
        """
        lease = self._lease
        child = self.waits[-1].child
        assert child is not None
        entry = lease.definitions.by_name[(lease.entry.project, effect.workflow)]
        event = self._ids.new()
        trigger = event_value(id=ulid_text(event), name=_INVOKED, data=effect.data, ts=0)
        self.starts.append(
            start_row(
                entry,
                run=child,
                source="invoke",
                event=event,
                event_name=_INVOKED,
                event_ts=None,
                event_data=effect.data,
                trigger=trigger,
                test=lease.test,
                parent=lease.run,
                trace=lease.span or lease.trace,
            )
        )
        self.waits += cancel_waits(entry, child, trigger)

    def _send(self, effect: SendEvents) -> None:
        """The mark that sends the events, and the step's output that names them."""
        lease = self._lease
        mark = SendMark.of(
            effect,
            run=lease.run,
            project=lease.entry.project,
            test=lease.test,
            ids=self._ids,
            trace=lease.span or lease.trace,
        )
        self.marks.append(MarkRow(lease.run, lease.tenant, "send_event", mark.to_json()))
        output = sent_output(mark.ids)
        self.size += utf8_size(output)
        if mark.ids_are_known:
            self.steps[-1] = self.steps[-1]._replace(output=output)


def _error(error: OpError) -> str:
    return error_json(error.name, error.message, error.stack)


def started_runs(item: CommitItem) -> list[UUID]:
    """Runs that the item starts."""
    return [row.id for row in item.start_rows]
