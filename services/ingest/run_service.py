"""RunService over gRPC: requests to the engine's words and back, nothing else.

Methods that are not here answer UNIMPLEMENTED.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from runr.workflows.v1 import run_service_pb2, run_service_pb2_grpc

from services.core.domain.errors import Unavailable
from services.core.domain.filter_rule import check_run_filter
from services.core.domain.run_record import Place, RunRecord
from services.core.domain.start_rule import StartLimits, check_start, start_data
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.engine.start_request import FreshRun, Started, StartRequest
from services.core.engine.start_run import RunStarter
from services.core.rpc import convert_run
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert import duration_ms, unix_ms
from services.core.rpc.convert_run import id_of
from services.core.rpc.id_paging import id_after, id_token
from services.core.rpc.paging import next_token, page_size, position_of
from services.core.runtime.ids import ulid_unix_ms
from services.core.store.runs import RunReader
from services.ingest.run_ends import RunEnds

_STEPS = 1_000
_MAX_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True)
class RunVerbs:
    """What can be done with runs."""

    starter: RunStarter
    canceller: RunCanceller
    retrier: RunRetrier
    replayer: RunReplayer


class RunService(run_service_pb2_grpc.RunServiceServicer):
    """Starts, shows, cancels, retries and replays runs."""

    def __init__(self, verbs: RunVerbs, reader: RunReader, ends: RunEnds, limits: StartLimits) -> None:
        self._verbs = verbs
        self._reader = reader
        self._ends = ends
        self._limits = limits

    async def StartRun(
        self, request: run_service_pb2.StartRunRequest, context: object
    ) -> run_service_pb2.StartRunResponse:
        """See the proto."""
        asked = _start_request(request, caller().tenant, self._limits)
        return await self._started(asked, await self._verbs.starter.start(asked))

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: object) -> run_service_pb2.GetRunResponse:
        """See the proto."""
        detail = await self._reader.detail(
            caller().tenant,
            id_of(request.run_id, "run"),
            steps=page_size(request.page_size, default=_STEPS, maximum=_STEPS),
            after=_place(request),
        )
        return run_service_pb2.GetRunResponse(
            run=convert_run.run(detail.run),
            steps=[convert_run.step(step) for step in detail.steps],
            children=[convert_run.child(child) for child in detail.children],
            next_page_token="" if detail.next is None else next_token(request, detail.next),
        )

    async def ListRuns(
        self, request: run_service_pb2.ListRunsRequest, context: object
    ) -> run_service_pb2.ListRunsResponse:
        """See the proto."""
        wanted = convert_run.run_filter(request)
        check_run_filter(wanted)
        page = await self._reader.list(
            caller().tenant, wanted, after=id_after(request), limit=page_size(request.page_size)
        )
        return run_service_pb2.ListRunsResponse(
            runs=[convert_run.run(run, stacks=False) for run in page.runs],
            next_page_token=id_token(request, page.next),
        )

    async def AwaitRun(
        self, request: run_service_pb2.AwaitRunRequest, context: object
    ) -> run_service_pb2.AwaitRunResponse:
        """See the proto."""
        tenant, run = caller().tenant, id_of(request.run_id, "run")
        wait_ms = min(duration_ms(request, "wait") or 0, _MAX_WAIT_MS)
        result = await self._reader.result(tenant, run)
        if wait_ms and not result.ended:
            await self._ends.wait(run, wait_ms / 1_000)
            result = await self._reader.result(tenant, run)
        return convert_run.result(result)

    async def CancelRun(
        self, request: run_service_pb2.CancelRunRequest, context: object
    ) -> run_service_pb2.CancelRunResponse:
        """See the proto."""
        tenant, run = caller().tenant, id_of(request.run_id, "run")
        keep = request.children == run_service_pb2.CHILDREN_POLICY_KEEP
        await self._verbs.canceller.cancel(tenant, run, keep_children=keep)
        return run_service_pb2.CancelRunResponse(run=convert_run.run(await self._reader.one(tenant, run)))

    async def RetryRun(
        self, request: run_service_pb2.RetryRunRequest, context: object
    ) -> run_service_pb2.RetryRunResponse:
        """See the proto."""
        tenant, run = caller().tenant, id_of(request.run_id, "run")
        await self._verbs.retrier.retry(tenant, run)
        return run_service_pb2.RetryRunResponse(run=convert_run.run(await self._reader.one(tenant, run)))

    async def ReplayRun(
        self, request: run_service_pb2.ReplayRunRequest, context: object
    ) -> run_service_pb2.ReplayRunResponse:
        """See the proto."""
        tenant = caller().tenant
        run = await self._verbs.replayer.replay(
            ReplayRequest(
                tenant=tenant,
                run=id_of(request.run_id, "run"),
                from_step=request.from_step if request.HasField("from_step") else None,
                data=start_data(request.data, self._limits) if request.HasField("data") else None,
                trace=current_call().traceparent or None,
            )
        )
        return run_service_pb2.ReplayRunResponse(run=convert_run.run(await self._reader.one(tenant, run)))

    async def _started(self, asked: StartRequest, started: Started) -> run_service_pb2.StartRunResponse:
        """The run as it is. One that was started just now is not read again."""
        run = (
            await self._existing(asked, started) if started.fresh is None else _fresh(asked, started.run, started.fresh)
        )
        return run_service_pb2.StartRunResponse(run=convert_run.run(run), existing=not started.is_new)

    async def _existing(self, asked: StartRequest, started: Started) -> RunRecord:
        try:
            return await self._reader.one(asked.tenant, started.run)
        except Unavailable:
            if not started.is_new:
                raise
            # It is committed: that it cannot be read must not look as if it were not.
            created_ms = ulid_unix_ms(started.run)
            fresh = FreshRun(
                created_ms=created_ms, due_ms=asked.at_ms, timeout_ms=None, key=asked.idempotency_key, trace=asked.trace
            )
            return _fresh(asked, started.run, fresh)


def _start_request(request: run_service_pb2.StartRunRequest, tenant: int, limits: StartLimits) -> StartRequest:
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
        trace=current_call().traceparent or None,
    )


def _fresh(asked: StartRequest, id: UUID, fresh: FreshRun) -> RunRecord:
    return RunRecord(
        id=id,
        workflow=asked.workflow,
        project=asked.project,
        state="queued",
        source="api",
        test=asked.test,
        attempt=0,
        tags=asked.tags,
        idempotency_key=fresh.key,
        parent=None,
        replay_of=None,
        created_ms=fresh.created_ms,
        started_ms=None,
        ended_ms=None,
        due_ms=fresh.due_ms,
        timeout_ms=fresh.timeout_ms,
        error=None,
        trace=fresh.trace,
    )


def _place(request: run_service_pb2.GetRunRequest) -> Place | None:
    position = position_of(request, int, str)
    if position is None:
        return None
    number, step_id = position
    assert isinstance(number, int)
    assert isinstance(step_id, str)
    return number, step_id
