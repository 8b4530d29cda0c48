"""Drive a held run: invoke, decide, commit, go on under the same lease, until it rests or ends."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from services.core.domain.cause import Answered, FunctionFailed
from services.core.domain.op import FunctionFault
from services.core.domain.run import Limits, Status
from services.core.domain.transition import Decision, decide
from services.core.runtime.clock import Clock
from services.core.runtime.ids import UlidFactory
from services.core.store.commit_item import CommitItem, Committed, Fenced, StorageRefused
from services.core.store.pipeline import Pipeline
from services.executor.aftermath import Aftermath
from services.executor.invoke import Invoker
from services.executor.lease import Lease
from services.executor.record import commit_item
from services.executor.spans import ExecutorSpans, Invocation

log = logging.getLogger(__name__)

Probe = Callable[[str], Awaitable[None]]


async def no_probe(_point: str) -> None:
    """The probe of production: nothing happens at the commit points."""


class Driver:
    """Drives runs. One instance serves all leases of an owner."""

    def __init__(
        self,
        *,
        invoker: Invoker,
        pipeline: Pipeline,
        aftermath: Aftermath,
        spans: ExecutorSpans,
        limits: Limits,
        ids: UlidFactory,
        clock: Clock,
        may_go_on: Callable[[], bool],
        probe: Probe = no_probe,
    ) -> None:
        """`may_go_on` tells before each invocation whether the lease may be used for another one (drain, silent
        heartbeat).

        `probe` is called at "before commit", "after commit" and "before effects", for tests that crash there.
        """
        self._invoker = invoker
        self._pipeline = pipeline
        self._aftermath = aftermath
        self._spans = spans
        self._limits = limits
        self._ids = ids
        self._clock = clock
        self._may_go_on = may_go_on
        self._probe = probe

    async def drive(self, lease: Lease) -> bool:
        """Drive the run until it rests or ends (True), or may not go on here and is still held (False)."""
        while self._may_go_on():
            try:
                with self._spans.invocation(lease) as invocation:
                    cause = await self._invoker.invoke(lease, invocation.traceparent)
                    invocation.answered()
                    decision, item, done = await self._commit(lease, cause, invocation)
            except Fenced:
                return True
            delivered = done.mail != lease.mail
            lease.advance(decision, item, done)
            await self._probe("before effects")
            self._aftermath.of(lease, decision, item, done)
            if decision.status is not Status.RUNNING or done.st != "r":
                return True  # it rests, has ended, or gave its slot to a run that waited longer
            if delivered:
                return False  # what was delivered meanwhile is not in memory: whoever claims the run next reads it
        return False

    async def _commit(
        self, lease: Lease, cause: Answered | FunctionFailed, invocation: Invocation
    ) -> tuple[Decision, CommitItem, Committed]:
        decision, item = self._decide(lease, cause)
        item = invocation.committing(item)
        await self._probe("before commit")
        try:
            done = await self._pipeline.commit(item)
        except StorageRefused as error:
            # What the function answered cannot be stored: an attempt that failed by name, so that it comes to an end
            # (C23).
            fault = FunctionFault("StorageError", f"the database refused what the function answered ({error})")
            decision, item = self._decide(lease, FunctionFailed(fault))
            item = invocation.committing(item)
            done = await self._pipeline.commit(item)
        await self._probe("after commit")
        return decision, item, done

    def _decide(self, lease: Lease, cause: Answered | FunctionFailed) -> tuple[Decision, CommitItem]:
        now = self._clock.unix_ms()
        try:
            decision = decide(lease.view(self._limits), cause, now)
            return decision, commit_item(lease, decision, self._ids, now)
        except Exception:
            # A fault of the engine must end like any other, not go round for ever: it counts as a failed attempt.
            log.exception("deciding about run %s failed", lease.run)
            failed = FunctionFailed(
                FunctionFault("EngineError", "the engine failed to handle the answer; its log says why")
            )
            decision = decide(lease.view(self._limits), failed, now)
            return decision, commit_item(lease, decision, self._ids, now)
