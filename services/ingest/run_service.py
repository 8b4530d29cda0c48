"""RunService over gRPC: requests to the engine's words and back, nothing else.

Methods that are not here answer UNIMPLEMENTED.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from runr.workflows.v1 import run_service_pb2, run_service_pb2_grpc

from services.core.domain.filter_rule import check_run_filter
from services.core.domain.run_change import Cursor
from services.core.domain.run_record import Place
from services.core.domain.start_rule import StartLimits, start_data
from services.core.engine.cancel_run import RunCanceller
from services.core.engine.replay_run import ReplayRequest, RunReplayer
from services.core.engine.retry_run import RunRetrier
from services.core.rpc import convert_run
from services.core.rpc.call_context import caller, current_call
from services.core.rpc.convert import duration_ms
from services.core.rpc.convert_run import id_of
from services.core.rpc.id_paging import id_after, id_token
from services.core.rpc.paging import next_token, page_size, position_of
from services.core.store.runs import RunReader
from services.ingest.run_ends import RunEnds
from services.ingest.start_service import StartService
from services.ingest.watch_service import WatchService

_STEPS = 1_000
_MAX_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True)
class RunVerbs:
    """What can be done with runs."""

    canceller: RunCanceller
    retrier: RunRetrier
    replayer: RunReplayer


class RunService(run_service_pb2_grpc.RunServiceServicer):
    """Starts, shows, follows, cancels, retries and replays runs."""

    def __init__(
        self,
        starts: StartService,
        verbs: RunVerbs,
        reader: RunReader,
        ends: RunEnds,
        watches: WatchService,
        limits: StartLimits,
    ) -> None:
        self._starts = starts
        self._verbs = verbs
        self._reader = reader
        self._ends = ends
        self._watches = watches
        self._limits = limits

    async def StartRun(
        self, request: run_service_pb2.StartRunRequest, context: object
    ) -> run_service_pb2.StartRunResponse:
        """See the proto."""
        call = current_call()
        return await self._starts.start(
            request, caller().tenant, call.traceparent or None, id=call.id, is_again=call.is_again
        )

    async def SubmitStarts(
        self, request_iterator: AsyncIterator[run_service_pb2.SubmitStartsRequest], context: object
    ) -> AsyncIterator[run_service_pb2.SubmitStartsResponse]:
        """See the proto."""
        async for message in self._starts.serve(request_iterator):
            yield message

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

    async def WatchRun(self, request: run_service_pb2.WatchRunRequest, context: Any) -> None:
        """See the proto."""
        # Not a generator: gRPC forgets one that it waits to write for when its caller goes, and does not close it.
        who = caller()
        watch = self._watches.watch(
            who.tenant, who.token_id, id_of(request.run_id, "run"), Cursor.parse(request.cursor)
        )
        async with contextlib.aclosing(watch) as messages:
            async for message in messages:
                await context.write(message)

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


def _place(request: run_service_pb2.GetRunRequest) -> Place | None:
    position = position_of(request, int, str)
    if position is None:
        return None
    number, step_id = position
    assert isinstance(number, int)
    assert isinstance(step_id, str)
    return number, step_id
