"""Works bulk jobs, a batch at a time. Any number of processes may: a job's cursor moves in the transaction that does
the batch, so each run is done once, and a job whose worker died goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from services.core.domain.bulk_job import BulkFault
from services.core.domain.errors import DomainError, Unavailable
from services.core.domain.op import OpError
from services.core.engine.bulk_batch import Batch, BulkActions
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints
from services.core.engine.retrying import after_commit, retrying
from services.core.engine.run_traces import RunTraces
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.bulk_jobs import Progress, TakenJob, advance_job, give_up_job, hold_job, take_job
from services.core.store.database import Database
from services.core.store.run_search import find_runs
from services.core.store.snapshot import snapshot

log = logging.getLogger(__name__)

BATCH = 500

_TURN_MS = 15_000
_FAULT = OpError("INTERNAL", "a fault of the engine; its log says more")


@dataclass(frozen=True, slots=True)
class Worked:
    """What came of a batch."""

    succeeded: int = 0
    skipped: int = 0
    failed: int = 0


class BulkWorker:
    """Does batches of the jobs of all tenants in turns."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
    ) -> None:
        self._database = database
        self._hints = hints
        self._gates = Gates(database, hints)
        self._traces = traces or RunTraces.off(database)
        self._actions = BulkActions(definitions, ids, self._traces.spans)

    async def work(self) -> Worked | None:
        """One batch of the job that has waited longest; None when there is no job. Raises Unavailable."""
        async with self._database.connection() as connection:
            job = await take_job(connection, _TURN_MS)
        if job is None:
            return None
        try:
            async with snapshot(self._database) as connection:
                runs, after = await find_runs(connection, job.tenant, job.wanted, after=job.cursor, limit=BATCH)
        except Unavailable:
            raise
        except Exception as error:  # the project is gone, or a filter that this version cannot read
            log.warning("a bulk job cannot go on", extra={"job": ulid_text(job.id)}, exc_info=True)
            await self._give_up(job, error)
            return Worked()
        return await self._page(job, runs, after)

    async def _page(self, job: TakenJob, runs: Sequence[UUID], after: UUID | None) -> Worked:
        try:
            return await self._batch(job, runs, after)
        except Unavailable:
            raise
        except Exception:
            # One run must not stop the others.
            log.exception(
                "a batch of a bulk job failed; its runs are done one by one", extra={"job": ulid_text(job.id)}
            )
        succeeded = skipped = failed = 0
        for place, run in enumerate(runs):
            following = after if place == len(runs) - 1 else run
            try:
                worked = await self._batch(job, [run], following)
            except Unavailable:
                raise
            except Exception:
                log.exception("a run of a bulk job failed", extra={"job": ulid_text(job.id), "run": ulid_text(run)})
                worked = await self._failed(job, run, following)
            succeeded, skipped, failed = (
                succeeded + worked.succeeded,
                skipped + worked.skipped,
                failed + worked.failed,
            )
            job = replace(job, cursor=following)
        return Worked(succeeded, skipped, failed)

    async def _batch(self, job: TakenJob, runs: Sequence[UUID], after: UUID | None) -> Worked:
        begun_ns = self._traces.spans.now_ns()
        batch = await retrying(lambda _: self._once(job, runs, after))
        if batch is None:
            return Worked()
        await self._tell(job, batch, begun_ns)
        return Worked(batch.succeeded, batch.skipped, len(batch.faults))

    async def _once(self, job: TakenJob, runs: Sequence[UUID], after: UUID | None) -> Batch | None:
        """None: the job was stopped, or this batch is done: by another, or by an attempt whose answer was lost."""
        async with self._database.transaction() as connection:
            faults = await hold_job(connection, job)
            if faults is None:
                return None
            batch = await self._actions.do(connection, job, runs) if runs else Batch(handled=0)
            whole = batch.handled == len(runs)
            progress = Progress(
                cursor=after if whole else runs[batch.handled - 1],
                succeeded=batch.succeeded,
                skipped=batch.skipped,
                faults=batch.faults,
                over=whole and after is None,
            )
            await advance_job(connection, job, faults, progress)
        return batch

    async def _failed(self, job: TakenJob, run: UUID, after: UUID | None) -> Worked:
        """Pass over a run that cannot be done."""
        async with self._database.transaction() as connection:
            faults = await hold_job(connection, job)
            if faults is None:
                return Worked()
            fault = BulkFault(run, _FAULT)
            progress = Progress(cursor=after, succeeded=0, skipped=0, faults=[fault], over=after is None)
            await advance_job(connection, job, faults, progress)
        return Worked(failed=1)

    async def _tell(self, job: TakenJob, batch: Batch, begun_ns: int) -> None:
        """What follows the commit."""
        self._hints.ready(batch.ready, traceparent=job.trace)
        for owner, runs in batch.owners.items():
            self._hints.cancelled(owner, runs)
        await after_commit(self._gates.grant(batch.gates))
        self._traces.ended("cancelled", [(job.tenant, run) for run in batch.ended])
        self._traces.meter.started("replay", len(batch.started))
        for run, workflow, trace in batch.started:
            self._traces.spans.started(run, workflow, trace=trace, parent=job.trace, begun_ns=begun_ns)

    async def _give_up(self, job: TakenJob, error: Exception) -> None:
        told = OpError(error.reason, error.message) if isinstance(error, DomainError) else _FAULT
        async with self._database.connection() as connection:
            await give_up_job(connection, job, told)
