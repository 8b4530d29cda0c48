"""Drive a held run over its worker's stream: each op is committed and answered as it comes, until the end."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.cause import FunctionFailed, Reported, Unwound
from services.core.domain.envelope import completed_json, error_json, failed_json
from services.core.domain.function_answer import parse_op
from services.core.domain.function_op import AnswerLimits
from services.core.domain.op import (
    FunctionFault,
    Invoke,
    Op,
    RunCompleted,
    RunFailed,
    Sleep,
    StepCompleted,
    StepFailed,
    WaitForEvent,
)
from services.core.domain.run import Status
from services.core.runtime.clock import Clock
from services.core.runtime.off_loop import SMALL_BYTES, OffLoop
from services.core.store.commit_item import Fenced, StepRow
from services.executor.asked import asked_s_ago
from services.executor.commits import Commits, Settled
from services.executor.current_definitions import CurrentDefinitions
from services.executor.invoke import startable
from services.executor.lease import Lease
from services.executor.spans import ExecutorSpans, Invocation
from services.executor.worker_stream.affinities import Affinities
from services.executor.worker_stream.deliveries import Deliveries
from services.executor.worker_stream.entries import ack_entry
from services.executor.worker_stream.invocation import Forgotten, LiveInvocation, Report, ReportedOp
from services.executor.worker_stream.session import WorkerSession

_RESTS = "the run rests, has ended, or is held by another"
_ENDS = (RunCompleted, RunFailed)
_NOTHING: Mapping[str, int] = MappingProxyType({})
_NO_ERROR = error_json("Error", "the step failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDriver:
    """Drives runs over streams. One instance serves all leases of an owner."""

    commits: Commits
    affinities: Affinities
    deliveries: Deliveries
    definitions: CurrentDefinitions
    spans: ExecutorSpans
    limits: AnswerLimits
    clock: Clock
    jitter: random.Random
    off_loop: OffLoop
    may_go_on: Callable[[], bool]

    async def drive(self, lease: Lease, session: WorkerSession) -> bool | None:
        """One invocation. True: the run rests, has ended, or is not ours any more. None: it may be invoked again."""
        with self.spans.invocation(lease) as span:
            invocation = session.execute(
                (lease.run_text, lease.epoch, lease.count_invocation()),
                workflow=lease.entry.name,
                request=lease.request(self.clock.unix_ms() // 1000),
                traceparent=span.traceparent,
                open_steps=lease.open_steps,
            )
            lease.under_way = invocation
            return await self._until_over(lease, session, _Drive(self, lease, session, invocation, span))

    async def go_on(self, lease: Lease, session: WorkerSession, invocation: LiveInvocation) -> bool | None:
        """The same for an invocation that the worker has brought along from another executor."""
        with self.spans.invocation(lease) as span:
            drive = _Drive(self, lease, session, invocation, span, known=frozenset(lease.memo.ids))
            return await self._until_over(lease, session, drive)

    async def rest(self, lease: Lease) -> bool:
        """Let go of a run whose steps are open, in the status of those. True, as of `drive`."""
        with contextlib.suppress(Fenced):
            await self.commits.settle(lease, Unwound(), self.spans.nothing(lease))
        return True

    async def lost(self, lease: Lease) -> bool:
        """The worker that has brought the run along is gone before it could go on. True, as of `drive`."""
        gone = FunctionFault("WorkerDisconnected", "the worker went away while its run was taken over")
        lease.under_way = None
        with contextlib.suppress(Fenced):
            await self.commits.settle(lease, FunctionFailed(gone, self.draw()), self.spans.nothing(lease))
        return True

    async def _until_over(self, lease: Lease, session: WorkerSession, drive: _Drive) -> bool | None:
        try:
            return await drive.until_over()
        except Fenced:
            return True
        except Forgotten:
            # Another executor may have told the worker to drop it: what has ended is not executed once more.
            return None if await self.affinities.confirm(lease) else True
        finally:
            lease.under_way = None
            session.close(drive.invocation, _RESTS)

    async def read_ops(self, reported: Sequence[ReportedOp]) -> list[Op]:
        """The ops in their texts; long ones away from the loop. Raises FunctionFault ProtocolError."""
        return [await self.off_loop.run(len(op.text), parse_op, op.text, limits=self.limits) for op in reported]

    def draw(self) -> float:
        """The random part of a backoff."""
        return self.jitter.uniform(0.8, 1.2)


class _Drive:
    """One invocation being driven."""

    def __init__(
        self,
        driver: StreamDriver,
        lease: Lease,
        session: WorkerSession,
        invocation: LiveInvocation,
        span: Invocation,
        *,
        known: frozenset[str] | None = None,
    ) -> None:
        """`known`: the steps that were stored when the invocation was taken over from another executor."""
        self.invocation = invocation
        self._known = known
        self._driver = driver
        self._lease = lease
        self._session = session
        self._span = span
        self._sent_s = driver.clock.monotonic()
        """When the worker was last sent something that it goes on with."""
        self._may_leave = False
        self._is_wanted = False
        """Whether others wait for the run's slot, which it keeps until nothing of it is executed."""
        self._delivered = known is not None
        """Whether the worker may have been waiting for something that it was given since."""

    async def until_over(self) -> bool | None:
        """See `StreamDriver.drive`."""
        if self._known is not None:
            await self._catch_up()
        while True:
            try:
                while not self.invocation.has_news:
                    await self.invocation.news()
                report = self.invocation.report()
                usual = self._usual(report)
                fresh, ops = await self._new_of(report) if usual is None else (report.ops, [usual])
            except FunctionFault as fault:
                self._span.answered()
                await self._driver.commits.settle(self._lease, FunctionFailed(fault, self._driver.draw()), self._span)
                return True
            if not fresh and not report.over:
                continue
            if not (fresh or self._is_wanted) and (self._goes_on_anew(report) or not self._lease.open_steps):
                return None  # it was asked to leave, or has come to a call that only a replay may make
            if usual is None:
                before = await self._stored_before(ops)
                settled = await self._settle(fresh, ops, over=report.over)
                self.invocation.results.update(_by_number(fresh, ops, before))
                self.invocation.results.update(_to_tell(fresh, ops, settled.item.step_rows))
            else:
                settled = await self._settle_usual(usual, over=report.over)
            rests = settled.decision.status is not Status.RUNNING or not settled.done.is_held
            self._is_wanted = settled.done.is_wanted
            self._acknowledge(fresh, settled, rests=rests)
            if rests:
                return True
            if settled.delivered:
                await self._deliver()
            if report.over:
                return None

    def _usual(self, report: Report) -> StepCompleted | RunCompleted | None:
        """The op, if it is the only one and the new result of a step or of the run, as nearly all are: nothing about it
        is to be looked up. Raises FunctionFault ProtocolError.
        """
        if len(report.ops) != 1 or report.mail or self._known is not None:
            return None
        number, text = report.ops[0]
        if number <= self.invocation.committed or len(text) > SMALL_BYTES:
            return None
        op = parse_op(text, limits=self._driver.limits)
        if isinstance(op, StepCompleted):
            lease = self._lease
            is_new = not (op.id in lease.memo.ids or op.id in lease.open_steps or op.id in self.invocation.deliveries)
            return op if is_new else None
        return op if isinstance(op, RunCompleted) else None

    async def _new_of(self, report: Report) -> tuple[list[ReportedOp], list[Op]]:
        """What of this was not answered before, as it came and as ops. Raises FunctionFault ProtocolError."""
        if report.mail:
            await self._deliver()
        fresh = await self._not_answered(report.ops)
        ops = await self._driver.read_ops(fresh)
        _check_ids(ops, self._lease.open_steps, self.invocation.deliveries)
        if self._known is not None and fresh:
            fresh, ops = await self._without_known(fresh, ops)
        if report.over and not fresh and not self._may_end_so(report):
            raise FunctionFault("ProtocolError", "the worker ended the invocation without an op")
        return fresh, ops

    async def _settle_usual(self, op: StepCompleted | RunCompleted, *, over: bool) -> Settled:
        self._lease.reporting = _NOTHING
        self._span.answered()
        if not self._driver.definitions.follow_known(self._lease):
            await self._driver.definitions.follow(self._lease)
        return await self._driver.commits.settle(self._lease, Reported((op,), executing=not over), self._span)

    async def _settle(self, reported: Iterable[ReportedOp], ops: Sequence[Op], *, over: bool) -> Settled:
        lease = self._lease
        lease.reporting = _numbers(reported, ops)
        self._span.answered()
        if not ops:
            return await self._driver.commits.settle(lease, Unwound(), self._span)
        await self._driver.definitions.follow(lease)
        checked = tuple(startable(lease, op) for op in ops)
        repeated = frozenset(op.id for op in checked if not isinstance(op, RunCompleted | RunFailed)) & lease.memo.ids
        ago_s = asked_s_ago(ops, self._sent_s, self._driver.clock)
        cause = Reported(checked, repeated, self._driver.draw(), executing=not over, ago_s=ago_s)
        return await self._driver.commits.settle(lease, cause, self._span)

    async def _stored_before(self, ops: Iterable[Op]) -> dict[str, str]:
        """The results of those of these steps that have one: what is said of them once more is answered with it."""
        steps = [op.id for op in ops if not isinstance(op, _ENDS) and op.id in self._lease.memo.ids]
        return await self._driver.deliveries.stored(self._lease, steps) if steps else {}

    async def _not_answered(self, reported: Sequence[ReportedOp]) -> list[ReportedOp]:
        fresh = []
        for op in reported:
            if self._answered(op):
                await self._session.room()  # what a worker may ask for again and again waits until it is read
            else:
                fresh.append(op)
        return fresh

    def _answered(self, op: ReportedOp) -> bool:
        """Whether the op was committed before, and its acknowledgement lost: then it is acknowledged once more."""
        if op.number > self.invocation.committed:
            return False
        self._ack(op.number, pb.ACK_OUTCOME_ALREADY)
        return True

    async def _catch_up(self) -> None:
        for step_id, result in (await self._driver.deliveries.last(self._lease)).items():
            self._session.deliver(self.invocation, step_id, result.encode())

    async def _without_known(self, reported: list[ReportedOp], ops: list[Op]) -> tuple[list[ReportedOp], list[Op]]:
        """What is new of this; what the executor before has committed is acknowledged, as its answer was lost."""
        pairs = list(zip(reported, ops, strict=True))
        known = {each.number: op.id for each, op in pairs if not isinstance(op, _ENDS) and self._is_known(each, op)}
        if not known:
            return reported, ops
        stored = await self._driver.deliveries.stored(self._lease, list(known.values()))
        for number, step_id in known.items():
            if step_id in stored:
                self.invocation.results[number] = stored[step_id].encode()
            self.invocation.committed = max(self.invocation.committed, number)
            self._ack(number, pb.ACK_OUTCOME_ALREADY)
        fresh = [(each, op) for each, op in pairs if each.number not in known]
        return [each for each, _ in fresh], [op for _, op in fresh]

    def _is_known(self, reported: ReportedOp, op: Op) -> bool:
        if isinstance(op, RunCompleted | RunFailed) or self._known is None:
            return False
        # A failed attempt is known by its op: whether its step still waits for the next one says nothing.
        return op.id in self._known or (isinstance(op, StepFailed) and reported.number in self.invocation.failed)

    def _goes_on_anew(self, report: Report) -> bool:
        """Whether the worker may ask for the next invocation at once: only with progress, or it would ask for ever."""
        return report.again and (self.invocation.committed > 0 or self._delivered)

    def _may_end_so(self, report: Report) -> bool:
        """Whether an invocation may end without an op: it waits for open steps, or was given a reason to leave."""
        # One that has ended may have been waiting for what was just delivered.
        reasons = self._may_leave or self._delivered or self._session.draining or self._goes_on_anew(report)
        return reasons or bool(self._lease.open_steps)

    def _acknowledge(self, reported: Iterable[ReportedOp], settled: Settled, *, rests: bool) -> None:
        leave = self._leave(settled, rests=rests)
        self._may_leave = leave != pb.YIELD_REASON_UNSPECIFIED
        for each in reported:
            self.invocation.committed = max(self.invocation.committed, each.number)
            self._ack(each.number, pb.ACK_OUTCOME_COMMITTED, leave)
        self._sent_s = self._driver.clock.monotonic()

    def _leave(self, settled: Settled, *, rests: bool) -> pb.YieldReason:
        if settled.item.end_row is not None:
            return pb.YIELD_REASON_ENDED
        if rests:
            return pb.YIELD_REASON_SLOT if settled.decision.status is Status.RUNNING else pb.YIELD_REASON_LATER
        if settled.done.is_wanted:
            return pb.YIELD_REASON_SLOT
        if self._session.draining or not self._driver.may_go_on() or self._lease.gives_way:
            return pb.YIELD_REASON_DRAIN
        return pb.YIELD_REASON_UNSPECIFIED

    def _ack(
        self,
        number: int,
        outcome: pb.AckOutcome,
        leave: pb.YieldReason = pb.YIELD_REASON_UNSPECIFIED,
    ) -> None:
        step = self.invocation.results.get(number)
        self._session.send_entry(ack_entry(self.invocation.ack_key, number, outcome, leave, step))

    async def _deliver(self) -> None:
        open_before = len(self._lease.open_steps)
        results = await self._driver.deliveries.read(self._lease)
        if open_before - len(self._lease.open_steps) > len(results):
            self._delivered = True  # a backoff is over: its step is executed by the next invocation
        for step_id, result in results.items():
            self._delivered = True
            self._session.deliver(self.invocation, step_id, result.encode())


def _check_ids(ops: Iterable[Op], open_steps: Mapping[str, str], delivered: Container[str]) -> None:
    """Raises FunctionFault ProtocolError for two ops of one step, and for the result of a step that waits, or whose
    result was delivered.
    """
    seen: set[str] = set()
    for op in ops:
        if isinstance(op, _ENDS):
            continue
        if op.id in seen:
            raise FunctionFault("ProtocolError", f"two ops for the step {op.id!r} were reported together")
        seen.add(op.id)
        if isinstance(op, Sleep | WaitForEvent | Invoke):
            continue
        if open_steps.get(op.id, "b") != "b":
            raise FunctionFault("ProtocolError", f"step {op.id!r} has a result, but it is a wait that is still open")
        if op.id in delivered:
            raise FunctionFault("ProtocolError", f"step {op.id!r} has a result, but it is a wait that was delivered")


def _numbers(reported: Iterable[ReportedOp], ops: Iterable[Op]) -> dict[str, int]:
    """The number of each step's op."""
    return {op.id: each.number for each, op in zip(reported, ops, strict=True) if not isinstance(op, _ENDS)}


def _by_number(reported: Iterable[ReportedOp], ops: Iterable[Op], results: Mapping[str, str]) -> dict[int, bytes]:
    """Results by the numbers of the ops of their steps."""
    numbers = _numbers(reported, ops) if results else {}
    return {numbers[step_id]: result.encode() for step_id, result in results.items()}


def _to_tell(reported: Iterable[ReportedOp], ops: Iterable[Op], rows: Iterable[StepRow]) -> dict[int, bytes]:
    """The results that were stored, by the numbers of their ops. Not what a body returned: the worker has it."""
    stored = {row.sid: row for row in rows}
    told: dict[int, bytes] = {}
    for each, op in zip(reported, ops, strict=True):
        row = None if isinstance(op, _ENDS) else stored.get(op.id)
        if row is not None and not (isinstance(op, StepCompleted) and row.status == "c"):
            told[each.number] = _result(row).encode()
    return told


def _result(row: StepRow) -> str:
    return completed_json(row.output or "null") if row.status == "c" else failed_json(row.error or _NO_ERROR)
