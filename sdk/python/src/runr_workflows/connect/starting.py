"""From the chunks of an Execute to running user code."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..async_bodies import AsyncBodies
from ..definition import Workflow
from ..failed_attempt import log_failure
from ..hooked_replay import hooked
from ..hooks import Hooks
from ..invocation import Invocation
from ..lost_steps import LostSteps
from ..protocol import ExecuteRequest, parse_request
from ..refusal import BadRequest
from ..replay import report_of_error
from ..trace import trace_context
from ..unwinding import Unwinding
from .async_calls import AsyncCalls
from .live_invocation import Key, LiveInvocation, Outlet
from .live_replay import LiveReplay
from .sync_calls import SyncCalls
from .worker_threads import WorkerThreads

_log = logging.getLogger("runr_workflows")

Over = Callable[[LiveInvocation], None]
Prepared = tuple[LiveInvocation, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Execution:
    """A whole Execute: the text of an execute request, and what travels beside it."""

    key: Key
    request: bytes
    traceparent: str
    open_steps: Sequence[str]
    tracestate: str = ""


class Starter:
    """Starts invocations of a set of workflows on the running loop.

    `threads` bounds those for sync functions of async workflows; a sync workflow always has one.
    """

    def __init__(
        self, workflows: Mapping[str, Workflow], *, capture_input: bool, threads: int, hooks: Hooks | None = None
    ) -> None:
        self._workflows = workflows
        self._capture_input = capture_input
        self._replay = hooked(LiveReplay, hooks)
        self._step_threads = WorkerThreads("runr-step", threads)
        self._bodies = AsyncBodies(lambda: self._step_threads)
        self._unwinding = Unwinding()
        self._threads = WorkerThreads("runr-workflow")
        self._lost_steps = LostSteps()

    def prepare(self, execution: Execution, outlet: Outlet, *, over: Over, ended: Over) -> Prepared:
        """An invocation and what begins it.

        `over` is called when the engine need not hear of it again, `ended` when no code of it runs any more.
        """
        try:
            workflow, request = self._understand(execution)
        except BadRequest as refusal:
            _log.warning("run %s cannot be executed: %s", execution.key.run_id, refusal)
            return _refused(execution, refusal, outlet, over=over, ended=ended)
        replay = self._replay(
            request.steps,
            execution.open_steps,
            parallel=workflow.is_async,
            capture_input=self._capture_input,
            watch=self._lost_steps.watch(workflow.name, request.run_id),
        )
        sent = {"traceparent": execution.traceparent, "tracestate": execution.tracestate}
        trace = trace_context(lambda name: sent[name] or None)
        invocation = Invocation(workflow, request, replay, trace=trace)
        code = self._code(invocation, replay, lambda: ended(live))
        live = LiveInvocation(
            execution.key,
            replay,
            outlet,
            unwind=code.unwind,
            over=over,
            failed=lambda failure: log_failure(invocation, failure),
        )
        replay.calls = code
        return live, lambda: code.start(live)

    def close(self) -> None:
        """Ends the threads that are idle."""
        self._threads.close()
        self._step_threads.close()

    def _understand(self, execution: Execution) -> tuple[Workflow, ExecuteRequest]:
        try:
            request = parse_request(execution.request.decode())
        except UnicodeDecodeError:
            raise BadRequest("the request is not UTF-8") from None
        if not isinstance(request, ExecuteRequest):
            raise BadRequest("the request is no execute request")
        workflow = self._workflows.get(request.workflow)
        if workflow is None:
            raise BadRequest(f"the workflow {request.workflow!r:.120} is not served here")
        return workflow, request

    def _code(self, invocation: Invocation, replay: LiveReplay, ended: Callable[[], None]) -> AsyncCalls | SyncCalls:
        if invocation.workflow.is_async:
            return AsyncCalls(invocation, replay, self._bodies, self._unwinding, ended)
        return SyncCalls(invocation, replay, self._threads, ended)


def _refused(execution: Execution, refusal: BadRequest, outlet: Outlet, *, over: Over, ended: Over) -> Prepared:
    """A failed attempt of the function, as a status 400 is over HTTP."""
    replay = LiveReplay({}, (), parallel=True, capture_input=False)
    live = LiveInvocation(
        execution.key, replay, outlet, unwind=lambda: ended(live), over=over, failed=lambda failure: None
    )
    return live, lambda: live.concluded(report_of_error(refusal))
