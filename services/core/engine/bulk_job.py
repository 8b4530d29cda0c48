"""Cancel, retry or replay all runs that a filter finds: asked for here, done in the background (engine section 3).

A job looks at the runs that were there when it was asked for, newest first, each once; whether a run is wanted is
decided when the job comes to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from uuid import UUID

from services.core.domain.bulk_job import BulkJob, bulk_filter, filter_print
from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from services.core.domain.filter_rule import check_run_filter
from services.core.domain.run_record import RunFilter
from services.core.engine.retrying import retrying
from services.core.engine.tokens import actor_of
from services.core.runtime.clock import Clock
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.store.access import write_audit
from services.core.store.bulk_jobs import NewJob, get_job, insert_job, page_of_jobs, same_active, stop_job
from services.core.store.database import Database
from services.core.store.projects import get_project
from services.core.store.queries import queries
from services.core.store.run_search import find_runs
from services.core.store.snapshot import snapshot
from services.core.store.workflows import get_workflow

MAX_COUNT = 100_000
"""Where counting stops: there are at least so many."""

MAX_ACTIVE = 20
"""Jobs of one tenant that may be at work."""

SAMPLE = 10

_COUNT_S = 5.0
_PAGE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRequest:
    """What is asked for. `wanted` without states: all that the action can be done to (a replay: ended runs)."""

    caller: Caller
    project: str
    action: str
    wanted: RunFilter
    dry_run: bool = False
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """How many runs a filter finds, and the newest of them; `partial`: there may be more."""

    total: int
    partial: bool
    sample: tuple[UUID, ...]


class BulkJobs:
    """Takes jobs in, shows them, stops them. `nudge` is called when there is a new one."""

    def __init__(self, database: Database, ids: UlidFactory, clock: Clock, nudge: Callable[[], None]) -> None:
        self._database = database
        self._ids = ids
        self._clock = clock
        self._nudge = nudge

    async def start(self, request: BulkRequest) -> tuple[BulkJob, tuple[UUID, ...]]:
        """The job, and some of the runs that it is about. A dry run only counts.

        Raises InvalidInput, NotFound (project or workflow), Conflict (the same job, or too many, are active),
        Unavailable.
        """
        _check(request.wanted)
        asked = bulk_filter(request.action, replace(request.wanted, project=request.project))
        project, now_ms = await self._look(request)
        # Runs that were there: not those that the job itself makes.
        until_ms = now_ms + 1 if asked.until_ms is None else min(asked.until_ms, now_ms + 1)
        wanted = replace(asked, until_ms=until_ms)
        counted = await self._count(request.caller.tenant, wanted)
        if request.dry_run:
            return _dry(request, counted), counted.sample
        new = NewJob(
            id=self._ids.new(),
            tenant=request.caller.tenant,
            project=project,
            action=request.action,
            wanted=wanted,
            print=filter_print(asked),
            total=counted.total,
            partial=counted.partial,
            trace=request.trace,
        )
        job = await retrying(lambda attempt: self._insert(request, new, again=attempt > 0))
        self._nudge()
        return job, counted.sample

    async def get(self, tenant: int, id: UUID) -> BulkJob:
        """One job. Raises NotFound, Unavailable."""
        async with self._database.connection() as connection:
            job = await get_job(connection, tenant, id)
        if job is None:
            raise NotFound(f"there is no job {ulid_text(id)}")
        return job

    async def page(self, tenant: int, project: str, *, after: UUID | None, limit: int) -> list[BulkJob]:
        """Jobs of a project, newest first, behind `after`. Raises NotFound, Unavailable."""
        async with self._database.connection() as connection:
            found = await get_project(connection, tenant, project)
            return await page_of_jobs(connection, tenant, found.id, after=after, limit=limit)

    async def stop(self, caller: Caller, id: UUID) -> BulkJob:
        """The job, stopped; what it has done stays done. Raises NotFound, Conflict (it has ended), Unavailable."""
        async with self._database.transaction() as connection:
            if await stop_job(connection, caller.tenant, id):
                await write_audit(
                    connection,
                    tenant=caller.tenant,
                    actor=actor_of(caller),
                    action="runs.bulk_stop",
                    subject=ulid_text(id),
                )
        job = await self.get(caller.tenant, id)
        if job.state != "stopped":
            raise Conflict(f"the job has ended already: {job.state}", reason="JOB_ENDED")
        return job

    async def _look(self, request: BulkRequest) -> tuple[int, int]:
        """The project's id, and what time it is. An unknown name is told: it would find nothing and seem to work."""
        tenant, name = request.caller.tenant, request.wanted.workflow
        async with self._database.connection() as connection:
            project = await get_project(connection, tenant, request.project)
            if name is not None and await get_workflow(connection, tenant, project.id, name) is None:
                raise NotFound(f"project {request.project!r} has no workflow {name!r}")
            now_ms: int = await connection.fetchval(queries("engine")["now_ms"])
        return project.id, now_ms

    async def _count(self, tenant: int, wanted: RunFilter) -> Counted:
        """Count as far as it is quick: each page in a snapshot of its own, so that none is open for long."""
        give_up = self._clock.monotonic() + _COUNT_S
        total = 0
        sample: tuple[UUID, ...] = ()
        after: UUID | None = None
        while total < MAX_COUNT and self._clock.monotonic() < give_up:
            async with snapshot(self._database) as connection:
                ids, after = await find_runs(connection, tenant, wanted, after=after, limit=_PAGE)
            total += len(ids)
            sample = (*sample, *ids)[:SAMPLE]
            if after is None:
                return Counted(total, False, sample)
        return Counted(total, True, sample)

    async def _insert(self, request: BulkRequest, new: NewJob, *, again: bool) -> BulkJob:
        async with self._database.transaction() as connection:
            stored = await get_job(connection, new.tenant, new.id) if again else None
            if stored is not None:
                return stored  # the answer of the first attempt was lost after its commit
            if not await insert_job(connection, new, most=MAX_ACTIVE):
                same = await same_active(connection, new)
                if same is not None:
                    raise Conflict(f"job {ulid_text(same)} does the same and has not ended", reason="ALREADY_EXISTS")
                raise Conflict(f"{MAX_ACTIVE} jobs have not ended: wait for them, or stop some", reason="TOO_MANY_JOBS")
            await write_audit(
                connection,
                tenant=new.tenant,
                actor=actor_of(request.caller),
                action=f"runs.bulk_{new.action}",
                subject=f"{ulid_text(new.id)} {request.project}",
            )
            job = await get_job(connection, new.tenant, new.id)
        if job is None:
            raise NotFound(f"there is no project {request.project!r}")
        return job


def _check(wanted: RunFilter) -> None:
    try:
        check_run_filter(wanted)
    except InvalidInput as error:
        faults = [FieldError(f"filter.{fault.path}", fault.message) for fault in error.errors]
        raise InvalidInput.of_all(faults) from error


def _dry(request: BulkRequest, counted: Counted) -> BulkJob:
    return BulkJob(
        id=None,
        project=request.project,
        action=request.action,
        state="completed",
        total=counted.total,
        partial=counted.partial,
    )
