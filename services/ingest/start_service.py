"""Starts over gRPC, one a call or many on a stream: requests to the engine's words and back, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from uuid import UUID

from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain.errors import NotFound, Unavailable
from services.core.domain.named_write import not_known
from services.core.domain.start_rule import StartLimits, check_start, start_data
from services.core.engine.start_request import FreshRun, Started, StartRequest
from services.core.engine.start_run import RunStarter
from services.core.rpc import convert_run
from services.core.rpc.convert import duration_ms, set_timestamp, unix_ms
from services.core.rpc.submissions import Kind, Submission, Submissions
from services.core.runtime.clock import Clock
from services.core.runtime.ids import ulid_text, ulid_unix_ms
from services.core.runtime.off_loop import SMALL_BYTES, OffLoop
from services.core.runtime.traceparent import trace_id
from services.core.store.runs import RunReader

# A run is listed by the time in its id, so that must be about when it was started.
_OLDEST_ID_MS = 60_000
_RPC = "/runr.workflows.v1.RunService/StartRun"


class StartService:
    """The part of RunService that starts runs."""

    def __init__(
        self, starter: RunStarter, reader: RunReader, limits: StartLimits, submissions: Submissions, clock: Clock
    ) -> None:
        self._starter = starter
        self._reader = reader
        self._limits = limits
        self._clock = clock
        self._off_loop = OffLoop("starts")
        self._submissions = submissions
        self._kind = Kind(_RPC, run_service_pb2.SubmitStartsResponse, self._take)
        self._reading: set[asyncio.Task[None]] = set()

    async def start(
        self,
        request: run_service_pb2.StartRunRequest,
        tenant: int,
        trace: str | None,
        *,
        id: UUID | None = None,
        is_again: bool = False,
    ) -> run_service_pb2.StartRunResponse:
        """StartRun. Under the same `id` it is the same start; `is_again`: it may have been carried out."""
        if is_again and id is not None and ulid_unix_ms(id) < self._clock.unix_ms() - _OLDEST_ID_MS:
            return await self._found(tenant, id)
        size = len(request.data)
        asked = await self._off_loop.run(
            size, _start_request, request, tenant, self._limits, trace=trace, id=id, again=id is not None
        )
        started = await self._starter.start(asked)
        return await self._response(asked, started)

    async def serve(
        self, messages: AsyncIterator[run_service_pb2.SubmitStartsRequest]
    ) -> AsyncIterator[run_service_pb2.SubmitStartsResponse]:
        """SubmitStarts."""
        async for message in self._submissions.serve(self._kind, messages):
            yield message

    async def _found(self, tenant: int, run: UUID) -> run_service_pb2.StartRunResponse:
        """The run of an id that is too old for a new one. Raises Conflict where there is none: it may yet come."""
        try:
            return run_service_pb2.StartRunResponse(run=convert_run.run(await self._reader.one(tenant, run)))
        except NotFound:
            raise not_known() from None

    async def _take(self, submission: Submission) -> None:
        """Start what was submitted. Raises what is wrong with it."""
        asked = partial(
            _start_request,
            submission.request,
            submission.caller.tenant,
            self._limits,
            trace=submission.trace,
            id=submission.id,
            again=submission.again,
        )
        size = len(submission.request.data)
        self._submit(submission, asked() if size <= SMALL_BYTES else await self._off_loop.run(size, asked))

    def _submit(self, submission: Submission, asked: StartRequest) -> None:
        def tell(end: Started | Exception) -> None:
            if isinstance(end, Exception):
                submission.fail(end)
            elif end.fresh is not None:
                submission.answer(_fresh_response(asked, end.run, end.fresh))
            else:
                reading = asyncio.create_task(self._read(submission, asked, end), name="read a found run")
                self._reading.add(reading)
                reading.add_done_callback(self._reading.discard)

        self._starter.submit(asked, tell)

    async def _read(self, submission: Submission, asked: StartRequest, started: Started) -> None:
        try:
            submission.answer(await self._response(asked, started))
        except Exception as error:
            submission.fail(error)

    async def _response(self, asked: StartRequest, started: Started) -> run_service_pb2.StartRunResponse:
        """The run as it is. One that was started just now is not read again."""
        if started.fresh is not None:
            return _fresh_response(asked, started.run, started.fresh)
        try:
            run = convert_run.run(await self._reader.one(asked.tenant, started.run))
            return run_service_pb2.StartRunResponse(run=run, existing=not started.is_new)
        except Unavailable:
            if not started.is_new:
                raise
            # It is committed: that it cannot be read must not look as if it were not.
            return _fresh_response(asked, started.run, _half_known(asked, started.run))


def _start_request(
    request: run_service_pb2.StartRunRequest,
    tenant: int,
    limits: StartLimits,
    *,
    trace: str | None,
    id: UUID | None = None,
    again: bool = False,
) -> StartRequest:
    key = request.idempotency_key if request.HasField("idempotency_key") else None
    tags = check_start(idempotency_key=key, tags=request.tags, limits=limits)
    return StartRequest(
        tenant=tenant,
        project=request.project,
        workflow=request.workflow,
        data=start_data(request.data, limits),
        idempotency_key=key,
        test=request.test,
        delay_ms=duration_ms(request, "delay"),
        at_ms=unix_ms(request, "at"),
        tags=tags,
        trace=trace,
        id=id,
        again=again,
    )


def _half_known(asked: StartRequest, run: UUID) -> FreshRun:
    return FreshRun(
        created_ms=ulid_unix_ms(run),
        due_ms=asked.at_ms,
        timeout_ms=None,
        key=asked.idempotency_key,
        trace=asked.trace,
    )


def _fresh_response(asked: StartRequest, id: UUID, fresh: FreshRun) -> run_service_pb2.StartRunResponse:
    response = run_service_pb2.StartRunResponse()
    run = response.run  # filled in where it is: a message that is given to another one is copied
    run.id = ulid_text(id)
    run.workflow = asked.workflow
    run.project = asked.project
    run.state = resources_pb2.RUN_STATE_QUEUED
    run.source = resources_pb2.RUN_SOURCE_API
    run.trace_id = trace_id(fresh.trace)
    if asked.test:
        run.test = True
    if asked.tags:
        run.tags.extend(asked.tags)
    if fresh.key is not None:
        run.idempotency_key = fresh.key
    set_timestamp(run.created_at, fresh.created_ms)
    if fresh.due_ms is not None:
        set_timestamp(run.due_at, fresh.due_ms)
    if fresh.timeout_ms is not None:
        set_timestamp(run.timeout_at, fresh.timeout_ms)
    return response
