"""Drive a held run over HTTP: invoke, decide, commit, go on under the same lease, until it rests or ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from services.core.domain.run import Status
from services.core.store.commit_item import Fenced
from services.executor.commits import Commits
from services.executor.invoke import Invoker
from services.executor.lease import Lease
from services.executor.spans import ExecutorSpans

log = logging.getLogger(__name__)

_MANY_STEPS = 1_000
"""From here on the state that each request carries is what a step costs (rulings P11)."""


class Driver:
    """Drives runs. One instance serves all leases of an owner."""

    def __init__(
        self, *, invoker: Invoker, commits: Commits, spans: ExecutorSpans, may_go_on: Callable[[], bool]
    ) -> None:
        """`may_go_on` tells before each invocation whether the lease may be used for another one (drain, silent
        heartbeat).
        """
        self._invoker = invoker
        self._commits = commits
        self._spans = spans
        self._may_go_on = may_go_on

    async def drive(self, lease: Lease) -> bool:
        """Drive the run until it rests or ends (True), or may not go on here and is still held (False)."""
        unrecorded = self._spans.unrecorded(lease)
        while await self._may_invoke(lease):
            steps = lease.steps
            try:
                with unrecorded or self._spans.invocation(lease) as invocation:
                    cause = await self._invoker.invoke(lease, invocation.traceparent)
                    invocation.answered()
                    settled = await self._commits.settle(lease, cause, invocation)
            except Fenced:
                return True
            if steps < _MANY_STEPS <= lease.steps and lease.entry.definition.checkpoint is None:
                _warn_of_growth(lease)
            if settled.decision.status is not Status.RUNNING or not settled.done.is_held:
                return True  # it rests, has ended, or gave its slot to a run that waited longer
            if settled.delivered:
                return False  # what was delivered meanwhile is not in memory: whoever claims the run next reads it
        return False

    async def _may_invoke(self, lease: Lease) -> bool:
        if not self._may_go_on():
            return False
        if not self._invoker.is_prepared(lease) and not (await self._invoker.prepare(lease) and self._may_go_on()):
            return False
        return not lease.gives_way


def _warn_of_growth(lease: Lease) -> None:
    log.warning(
        "run %s of workflow %s has %d steps, and each request carries the results of all: "
        "give the workflow a checkpoint, or let a worker connect (wf.connect)",
        lease.run_text,
        lease.entry.name,
        lease.steps,
    )
