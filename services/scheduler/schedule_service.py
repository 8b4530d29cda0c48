"""The gRPC face of cron triggers: translates, and calls what does the work. Bulk jobs are in `bulk_service.py`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from runr.workflows.v1 import schedule_service_pb2 as pb
from runr.workflows.v1 import schedule_service_pb2_grpc

from services.core.domain.errors import InvalidInput
from services.core.engine.bulk_job import BulkJobs
from services.core.engine.fire_schedule import ScheduleFirer
from services.core.engine.schedules import ScheduleKey, Schedules, unknown_schedule
from services.core.rpc import convert_run, paging
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert import unix_ms
from services.core.rpc.convert_schedule import backfilled, schedule
from services.core.rpc.server import Registration
from services.core.store.runs import RunReader
from services.scheduler.bulk_service import BulkMethods

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TRIGGER = 32_767


class ScheduleService(BulkMethods, schedule_service_pb2_grpc.ScheduleServiceServicer):
    """See `proto/runr/workflows/v1/schedule_service.proto`."""

    def __init__(self, schedules: Schedules, firer: ScheduleFirer, reader: RunReader, jobs: BulkJobs) -> None:
        super().__init__(jobs)
        self._schedules = schedules
        self._firer = firer
        self._reader = reader

    @property
    def registration(self) -> Registration:
        """How a server takes it in."""
        return schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server, self

    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Any) -> pb.ListSchedulesResponse:
        """A page of cron triggers by workflow and index."""
        size = paging.page_size(request.page_size)
        position = paging.position_of(request, str, int)
        after = None if position is None else (str(position[0]), min(int(position[1]), _MAX_TRIGGER))
        found = await self._schedules.page(caller().tenant, request.project, after=after, limit=size + 1)
        page = found[:size]
        more = len(found) > size
        return pb.ListSchedulesResponse(
            schedules=map(schedule, page),
            next_page_token=paging.next_token(request, [page[-1].workflow, page[-1].trigger]) if more else "",
        )

    async def UpdateSchedule(self, request: pb.UpdateScheduleRequest, context: Any) -> pb.UpdateScheduleResponse:
        """Switches a trigger off or on."""
        if not request.HasField("is_active"):
            raise InvalidInput.of("is_active", "is required: true or false")
        record = await self._schedules.set_active(caller().tenant, _key(request.key), request.is_active)
        return pb.UpdateScheduleResponse(schedule=schedule(record))

    async def TriggerSchedule(self, request: pb.TriggerScheduleRequest, context: Any) -> pb.TriggerScheduleResponse:
        """Starts a run now."""
        tenant = caller().tenant
        trace = current_call().traceparent or None
        started = await self._firer.fire_now(tenant, _key(request.key), trace=trace)
        run = await self._reader.one(tenant, started.run)
        return pb.TriggerScheduleResponse(run=convert_run.run(run), existing=not started.is_new)

    async def BackfillSchedule(self, request: pb.BackfillScheduleRequest, context: Any) -> pb.BackfillScheduleResponse:
        """Starts a run for each tick of a past range that has none."""
        since = _instant(request, "since")
        if since is None:
            raise InvalidInput.of("since", "is required")
        done = await self._firer.backfill(
            caller().tenant,
            _key(request.key),
            since=since,
            until=_instant(request, "until"),
            dry_run=request.dry_run,
            trace=current_call().traceparent or None,
        )
        job = backfilled(project=request.key.project, total=done.total, started=done.started, skipped=done.skipped)
        return pb.BackfillScheduleResponse(job=job)


def _key(key: pb.ScheduleKey) -> ScheduleKey:
    found = ScheduleKey(key.project, key.workflow, key.trigger)
    if not 0 <= key.trigger <= _MAX_TRIGGER or "\0" in key.project + key.workflow:
        raise unknown_schedule(found)
    return found


def _instant(request: Any, field: str) -> datetime | None:
    value = unix_ms(request, field)
    try:
        return None if value is None else _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        raise InvalidInput.of(field, "must be a time of the years 1 to 9999") from None
