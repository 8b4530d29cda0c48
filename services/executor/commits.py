"""One cause of a held run, decided and committed: what every way of driving a run has in common."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from services.core.domain.cause import Answered, FunctionFailed, Reported, Unwound
from services.core.domain.errors import Unavailable
from services.core.domain.op import BadStep, FunctionFault, OpError, WaitForEvent
from services.core.domain.run import Limits
from services.core.domain.transition import Decision, decide
from services.core.engine.wait_room import WaitRoom
from services.core.runtime.ids import UlidFactory
from services.core.store.commit_item import CommitItem, Committed, StorageRefused
from services.core.store.pipeline import Pipeline
from services.executor.aftermath import Aftermath
from services.executor.invocation_meter import InvocationMeter
from services.executor.lease import Lease
from services.executor.record import commit_item
from services.executor.spans import Invocation

log = logging.getLogger(__name__)

_AGAIN_S = 0.5

Probe = Callable[[str], Awaitable[None]]
HolderCause = Answered | FunctionFailed | Reported | Unwound


class Settled(msgspec.Struct, frozen=True):
    """What a cause came to. `delivered`: something was delivered to the run that is not in the lease's memory."""

    decision: Decision
    item: CommitItem
    done: Committed
    delivered: bool


class Commits:
    """Decides and commits for all leases of an owner.

    `probe` is called at "before commit", "after commit" and "before effects", for tests that crash there; production
    has none.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        aftermath: Aftermath,
        room: WaitRoom,
        limits: Limits,
        ids: UlidFactory,
        meter: InvocationMeter | None = None,
        probe: Probe | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._aftermath = aftermath
        self._room = room
        self._limits = limits
        self._ids = ids
        self._meter = meter or InvocationMeter()
        self._probe = probe

    async def settle(self, lease: Lease, cause: HolderCause, invocation: Invocation) -> Settled:
        """Commit what `cause` comes to, and act on it after the commit.

        Raises Fenced when the lease is lost.
        """
        told_s = time.monotonic() - (cause.ago_s if isinstance(cause, Answered | Reported) else 0.0)
        decision, item = self._decide(lease, cause, told_s)
        if item.wait_rows and isinstance(cause, Answered | Reported):
            refused = await self._room.faults(item.wait_rows)
            if refused:
                decision, item = self._decide(lease, _refused(cause, refused), told_s)
        item = invocation.committing(item)
        if self._probe is not None:
            await self._probe("before commit")
        try:
            done = await self._pipeline.commit(item)
        except StorageRefused as error:
            # What the function answered cannot be stored: an attempt that failed by name, so that it comes to an end
            # (C23).
            fault = FunctionFault("StorageError", f"the database refused what the function answered ({error})")
            decision, item = self._decide(lease, FunctionFailed(fault), told_s)
            item = invocation.committing(item)
            done = await self._pipeline.commit(item)
        invocation.committed()
        if item.attempt_rows:
            self._meter.failed(item, cause)
        if self._probe is not None:
            await self._probe("after commit")
        if item.mark_rows and any(row.unnamed for row in item.step_rows):
            item = await self._named(item)
        delivered = done.mail != lease.mail
        lease.advance(decision, item, done)
        if self._probe is not None:
            await self._probe("before effects")
        self._aftermath.of(lease, decision, item, done)
        return Settled(decision, item, done, delivered)

    async def _named(self, item: CommitItem) -> CommitItem:
        """The item with the ids of what it has sent, once the database tells them: the lease is of no use without."""
        while True:
            try:
                return await self._aftermath.name_sent(item)
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)

    def _decide(self, lease: Lease, cause: HolderCause, told_s: float) -> tuple[Decision, CommitItem]:
        try:
            decision = decide(lease.view(self._limits), cause, lease.reached_ms)
            executing = isinstance(cause, Reported) and cause.executing
            return decision, commit_item(lease, decision, self._ids, executing=executing, told_s=told_s)
        except Exception:
            # A fault of the engine must end like any other, not go round for ever: it counts as a failed attempt.
            log.exception("deciding about run %s failed", lease.run)
            failed = FunctionFailed(
                FunctionFault("EngineError", "the engine failed to handle the answer; its log says why")
            )
            decision = decide(lease.view(self._limits), failed, lease.reached_ms)
            return decision, commit_item(lease, decision, self._ids, told_s=told_s)


def _refused(cause: Answered | Reported, errors: Mapping[str, OpError]) -> Answered | Reported:
    """The same answer, with these waits failed at once."""
    ops = (
        BadStep(id=op.id, name=op.name, kind="wait_for_event", error=errors[op.id])
        if isinstance(op, WaitForEvent) and op.id in errors
        else op
        for op in cause.ops
    )
    return msgspec.structs.replace(cause, ops=tuple(ops))
