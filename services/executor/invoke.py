"""One invocation: from a held run to the cause that its function's answer is."""

from __future__ import annotations

import random

from services.core.domain.cause import Answered, FunctionFailed
from services.core.domain.definition import Checkpoint
from services.core.domain.function_answer import parse_answer
from services.core.domain.function_op import AnswerLimits
from services.core.domain.op import BadStep, FunctionFault, Invoke, Op, OpError, RunCompleted, RunFailed, StepCompleted
from services.core.engine.sync import NoEndpoint
from services.core.runtime.clock import Clock
from services.core.runtime.off_loop import SMALL_BYTES, OffLoop
from services.core.runtime.settings import FunctionSettings, WorkflowLimits
from services.core.runtime.traceparent import headers as trace_headers
from services.executor.asked import asked_s_ago
from services.executor.current_definitions import CurrentDefinitions
from services.executor.endpoint import endpoint_of
from services.executor.function_client import FunctionClient, Target, WrittenHeaders
from services.executor.invocation_meter import InvocationMeter
from services.executor.lease import Lease


class Invoker:
    """Calls functions and reads what they answer. Never raises for a fault of the function: that is a cause too."""

    def __init__(
        self,
        client: FunctionClient,
        definitions: CurrentDefinitions,
        *,
        settings: FunctionSettings,
        limits: AnswerLimits,
        clock: Clock,
        jitter: random.Random,
        steps_per_run: int = WorkflowLimits.steps_per_run,
        meter: InvocationMeter | None = None,
    ) -> None:
        self._off_loop = OffLoop("answers")
        self._meter = meter or InvocationMeter()
        self._client = client
        self._definitions = definitions
        self._settings = settings
        self._limits = limits
        self._clock = clock
        self._jitter = jitter
        self._steps_per_run = steps_per_run

    def is_prepared(self, lease: Lease) -> bool:
        """Whether the lease has the endpoint, keys and definitions that hold now. False: `prepare` is needed."""
        return self._definitions.follow_known(lease)

    async def prepare(self, lease: Lease) -> bool:
        """Before each invocation: the endpoint, keys and definitions that hold now. False: its project is deleted."""
        return await self._definitions.follow(lease)

    async def invoke(self, lease: Lease, traceparent: str | None) -> Answered | FunctionFailed:
        """Send one execute request for the run and answer what happened."""
        sent_s = self._clock.monotonic()
        try:
            ops = await self._ask(lease, traceparent)
        except FunctionFault as fault:
            return FunctionFailed(fault, self._draw())
        only = ops[0] if len(ops) == 1 else None
        if isinstance(only, RunCompleted) or (isinstance(only, StepCompleted) and only.id not in lease.memo.ids):
            return Answered((only,))  # as nearly all are: nothing about it is to be looked up or drawn
        if any(isinstance(op, Invoke) for op in ops):
            # The function may have taken minutes: what it invokes must be there, and not paused, now.
            await self._definitions.follow(lease)
        checked = tuple(startable(lease, op) for op in ops)
        repeated = frozenset(op.id for op in checked if not isinstance(op, RunCompleted | RunFailed)) & lease.memo.ids
        return Answered(checked, repeated, self._draw(), ago_s=asked_s_ago(ops, sent_s, self._clock))

    def _draw(self) -> float:
        """The random part of a backoff."""
        return self._jitter.uniform(0.8, 1.2)

    async def _ask(self, lease: Lease, traceparent: str | None) -> list[Op]:
        url = endpoint_of(lease.project, self._settings)
        if url is None:
            raise NoEndpoint
        if not lease.project.keys:
            raise FunctionFault("FunctionUnreachable", "the project has no signing key that this engine can open")
        target = Target(url, lease.project.keys, self._settings.verify_tls)
        room = None if lease.entry.definition.checkpoint is None else self._room(lease)
        request = lease.request(
            self._clock.unix_ms() // 1000,
            max_ops=None if room is None else room.max_steps,
            budget_ms=None if room is None else room.max_time_ms,
        )
        begun_s = self._clock.monotonic()
        try:
            answer = await self._client.call(
                target, "execute", request, self._headers(lease, traceparent), self._settings.request_timeout_s
            )
        finally:
            self._meter.called(self._clock.monotonic() - begun_s)
        max_ops = 1 if room is None else room.max_steps
        if len(answer.body) <= SMALL_BYTES:
            return parse_answer(answer.status, answer.body, limits=self._limits, max_ops=max_ops)
        # A big answer must not hold up the heartbeat (rulings C20).
        return await self._off_loop.run(
            len(answer.body), parse_answer, answer.status, answer.body, limits=self._limits, max_ops=max_ops
        )

    def _room(self, lease: Lease) -> Checkpoint | None:
        """What one answer may hold, None for one op: what the workflow asks for, within the steps that the run has
        left, and so that steps begin in the first half of the time that there is for an answer.
        """
        asked = lease.checkpoint()
        max_ops = 1 if asked is None else min(asked.max_steps, self._steps_per_run - lease.steps)
        if asked is None or max_ops <= 1:
            return None
        return Checkpoint(max_ops, min(asked.max_time_ms, int(self._settings.request_timeout_s * 500)))

    @staticmethod
    def _headers(lease: Lease, trace: str | None) -> WrittenHeaders:
        """Those of this run's requests: the same for most of its steps."""
        told = lease.entry.name, lease.attempt, trace
        if lease.headers is None or lease.headers[0] != told:
            headers = {
                "X-RunR-Workflow": lease.entry.name,
                "X-RunR-Run-Id": lease.run_text,
                "X-RunR-Attempt": str(lease.attempt),
                **trace_headers(trace),
            }
            lease.headers = told, WrittenHeaders(headers)
        return lease.headers[1]


def startable(lease: Lease, op: Op) -> Op:
    """An invoke of a workflow that cannot be started fails its step at once (engine section 5)."""
    if not isinstance(op, Invoke):
        return op
    entry = lease.definitions.by_name.get((lease.entry.project, op.workflow))
    if entry is None:
        fault = "does not exist in this project"
    elif entry.archived:
        fault = "is archived"
    elif not entry.is_active:
        fault = "is paused"
    else:
        return op
    error = OpError("InvokeError", f"workflow {op.workflow!r} {fault}: it cannot be invoked")
    return BadStep(id=op.id, name=op.name, kind="invoke", error=error)
