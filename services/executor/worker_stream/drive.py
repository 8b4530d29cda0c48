"""Drive a held run over its worker's stream: each op is committed and answered as it comes, until the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.cause import FunctionFailed, Reported, Unwound
from services.core.domain.envelope import completed_json, error_json, failed_json
from services.core.domain.function_answer import parse_op
from services.core.domain.function_op import AnswerLimits
from services.core.domain.op import FunctionFault, Invoke, Op, RunCompleted, RunFailed, StepCompleted
from services.core.domain.run import Status
from services.core.runtime.clock import Clock
from services.core.runtime.off_loop import OffLoop
from services.core.store.commit_item import Fenced, StepRow
from services.executor.commits import Commits, Settled
from services.executor.current_definitions import CurrentDefinitions
from services.executor.invoke import startable
from services.executor.lease import Lease
from services.executor.spans import ExecutorSpans, Invocation
from services.executor.worker_stream.deliveries import Deliveries
from services.executor.worker_stream.invocation import Forgotten, LiveInvocation, ReportedOp
from services.executor.worker_stream.session import WorkerSession

_RESTS = "the run rests, has ended, or is held by another"
_NO_ERROR = error_json("Error", "the step failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDriver:
    """Drives runs over streams. One instance serves all leases of an owner."""

    commits: Commits
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
            try:
                return await _Drive(self, lease, session, invocation, span).until_over()
            except Fenced:
                return True
            except Forgotten:
                return None
            finally:
                session.close(invocation, _RESTS)

    async def read_ops(self, reported: Sequence[ReportedOp]) -> list[Op]:
        """The ops in their texts; long ones away from the loop. Raises FunctionFault ProtocolError."""
        return [await self.off_loop.run(len(op.text), parse_op, op.text, limits=self.limits) for op in reported]

    def draw(self) -> float:
        """The random part of a backoff."""
        return self.jitter.uniform(0.8, 1.2)


class _Drive:
    """One invocation being driven."""

    def __init__(
        self, driver: StreamDriver, lease: Lease, session: WorkerSession, invocation: LiveInvocation, span: Invocation
    ) -> None:
        self._driver = driver
        self._lease = lease
        self._session = session
        self._invocation = invocation
        self._span = span
        self._may_leave = False

    async def until_over(self) -> bool | None:
        """See `StreamDriver.drive`."""
        while True:
            try:
                report = await self._invocation.report()
                fresh = [op for op in report.ops if not self._answered(op)]
                ops = await self._driver.read_ops(fresh)
                if report.over and not fresh and not self._may_end_so():
                    raise FunctionFault("ProtocolError", "the worker ended the invocation without an op")
            except FunctionFault as fault:
                self._span.answered()
                await self._driver.commits.settle(self._lease, FunctionFailed(fault, self._driver.draw()), self._span)
                return True
            if not fresh and not report.over:
                continue
            if not fresh and not self._lease.open_steps:
                return None  # it was asked to leave
            settled = await self._settle(ops, over=report.over)
            rests = settled.decision.status is not Status.RUNNING or settled.done.st != "r"
            self._acknowledge(fresh, ops, settled, rests=rests)
            if rests:
                return True
            if settled.delivered:
                await self._deliver()
            if report.over:
                return None

    async def _settle(self, ops: list[Op], *, over: bool) -> Settled:
        lease = self._lease
        if over:
            self._span.answered()
        if not ops:
            return await self._driver.commits.settle(lease, Unwound(), self._span)
        if any(isinstance(op, Invoke) for op in ops):
            await self._driver.definitions.follow(lease)
        checked = tuple(startable(lease, op) for op in ops)
        repeated = frozenset(op.id for op in checked if not isinstance(op, RunCompleted | RunFailed)) & lease.memo.ids
        cause = Reported(checked, repeated, self._driver.draw(), executing=not over)
        return await self._driver.commits.settle(lease, cause, self._span)

    def _answered(self, op: ReportedOp) -> bool:
        """Whether the op was committed before, and its acknowledgement lost: then it is acknowledged once more."""
        if op.number > self._invocation.committed:
            return False
        self._ack(op.number, pb.ACK_OUTCOME_ALREADY)
        return True

    def _may_end_so(self) -> bool:
        """Whether an invocation may end without an op: it waits for open steps, or was given a reason to leave."""
        return bool(self._lease.open_steps) or self._may_leave or self._session.draining

    def _acknowledge(self, reported: list[ReportedOp], ops: Iterable[Op], settled: Settled, *, rests: bool) -> None:
        leave = self._leave(settled, rests=rests)
        self._may_leave = leave != pb.YIELD_REASON_UNSPECIFIED
        stored = {row.sid: row for row in settled.item.step_rows}
        for each, op in zip(reported, ops, strict=True):
            row = None if isinstance(op, RunCompleted | RunFailed) else stored.get(op.id)
            # What a body returned is not sent back: the worker has it.
            if row is not None and not (isinstance(op, StepCompleted) and row.status == "c"):
                self._invocation.results[each.number] = _result(row).encode()
            self._invocation.committed = max(self._invocation.committed, each.number)
            self._ack(each.number, pb.ACK_OUTCOME_COMMITTED, leave)

    def _leave(self, settled: Settled, *, rests: bool) -> pb.YieldReason:
        if settled.item.end_row is not None:
            return pb.YIELD_REASON_ENDED
        if rests:
            return pb.YIELD_REASON_SLOT if settled.decision.status is Status.RUNNING else pb.YIELD_REASON_LATER
        if self._session.draining or not self._driver.may_go_on():
            return pb.YIELD_REASON_DRAIN
        return pb.YIELD_REASON_UNSPECIFIED

    def _ack(
        self,
        number: int,
        outcome: pb.AckOutcome,
        leave: pb.YieldReason = pb.YIELD_REASON_UNSPECIFIED,
    ) -> None:
        step = self._invocation.results.get(number)
        ack = pb.Ack(key=self._invocation.message_key, number=number, outcome=outcome, yield_reason=leave, step=step)
        self._session.send(pb.EngineMessage(ack=ack), 0 if step is None else len(step))

    async def _deliver(self) -> None:
        open_before = len(self._lease.open_steps)
        results = await self._driver.deliveries.read(self._lease)
        if open_before - len(self._lease.open_steps) > len(results):
            self._may_leave = True  # a backoff is over: its step is executed by the next invocation
        for step_id, result in results.items():
            delivery = pb.Delivery(key=self._invocation.message_key, step_id=step_id, step=result.encode())
            self._session.send(pb.EngineMessage(delivery=delivery), len(result))


def _result(row: StepRow) -> str:
    return completed_json(row.output or "null") if row.status == "c" else failed_json(row.error or _NO_ERROR)
