"""What a function answers: from a body and its headers to a status and a body, over any transport."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from .async_runner import AsyncRunner
from .background import Background
from .checkpoint import CheckpointReplay, Room
from .definition import Workflow
from .dry import DryReplay
from .failed_attempt import log_failure
from .hooked_replay import hooked
from .hooks import Hooks
from .invocation import Invocation
from .lost_steps import LostSteps
from .protocol import (
    SIGNATURE_HEADER,
    ExecuteRequest,
    IntrospectRequest,
    LowerNames,
    dry_answer,
    error_answer,
    introspect_answer,
    lower_names,
    open_envelope,
    ops_answer,
    parse_request,
)
from .refusal import BadRequest, RequestRefused
from .replay import Replay
from .trace import trace_context

Answer = tuple[int, bytes]
"""HTTP status and JSON body."""

_log = logging.getLogger("runr_workflows")


class Endpoint:
    """Answers engine requests for a set of workflows. `keys` and `clock` (unix seconds) are asked on each request."""

    plain: type[Replay] = Replay
    """The state of an invocation that answers one op."""
    several: type[CheckpointReplay] = CheckpointReplay
    """That of one which may answer more."""
    dry: type[DryReplay] = DryReplay
    """That of one in which nothing is done."""

    def __init__(
        self,
        workflows: Mapping[str, Workflow],
        *,
        keys: Callable[[], Sequence[str]],
        clock: Callable[[], float],
        background: Background,
        capture_input: bool,
        hooks: Hooks | None = None,
    ) -> None:
        self._workflows = workflows
        self._keys = keys
        self._clock = clock
        self._background = background
        self._capture_input = capture_input
        self._hooks = hooks
        self._plain = hooked(self.plain, hooks)
        self._several = hooked(self.several, hooks)
        self._dry = hooked(self.dry, hooks)
        self._async_runner = AsyncRunner(background.executor)
        self._lost_steps = LostSteps()

    def handle(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Answers a request in this thread; async workflows run on the background loop."""
        return self._answer(self._open(body, headers))

    def handle_async(self, body: bytes, headers: Mapping[str, str]) -> Coroutine[Any, Any, Answer]:
        """Answers a request on the running loop; sync workflows run in a thread."""
        return self._answer_async(self._open(body, headers))

    def answer(self, request: str) -> Answer:
        """Answers a request that came without an envelope, as `handle` does: the caller vouches for it."""
        return self._answer(self._opened(request))

    def answer_async(self, request: str) -> Coroutine[Any, Any, Answer]:
        """The same on the running loop."""
        return self._answer_async(self._opened(request))

    def decoded(self, output: Any) -> Any:
        """The output of a run, as the workflow function has returned it."""
        if self._hooks is None:
            return output
        return self._background.run(self._hooks.decoded(output, "run"))

    def _answer(self, opened: Invocation | Answer) -> Answer:
        if not isinstance(opened, Invocation):
            return opened
        try:
            if opened.workflow.is_async:
                return _answer(opened, self._background.run(self._async_runner.run(opened)))
            return _answer(opened, opened.run_sync())
        except Exception:
            return _fault()

    async def _answer_async(self, opened: Invocation | Answer) -> Answer:
        if not isinstance(opened, Invocation):
            return opened
        try:
            if opened.workflow.is_async:
                return _answer(opened, await self._async_runner.run(opened))
            loop, threads = asyncio.get_running_loop(), self._background.executor()
            return _answer(opened, await loop.run_in_executor(threads, opened.run_sync))
        except Exception:
            return _fault()

    def _open(self, body: bytes, headers: Mapping[str, str]) -> Invocation | Answer:
        """What a request asks to execute; the answer where it asks for something else, or is refused."""
        began = time.monotonic()
        named = headers if type(headers) is LowerNames else lower_names(headers)
        try:
            text = open_envelope(body, named.get(SIGNATURE_HEADER), self._keys(), self._clock())
            return self._read(text, named.get, began)
        except RequestRefused as refusal:
            return _refused(refusal)
        except Exception:
            return _fault()

    def _opened(self, text: str) -> Invocation | Answer:
        """As `_open`, of the request itself."""
        try:
            return self._read(text, lambda _: None, time.monotonic())
        except RequestRefused as refusal:
            return _refused(refusal)

    def _read(self, text: str, header: Callable[[str], str | None], began: float) -> Invocation | Answer:
        request = parse_request(text)
        if isinstance(request, IntrospectRequest):
            return 200, introspect_answer([workflow.definition for workflow in self._workflows.values()])
        workflow = self._workflows.get(request.workflow)
        if workflow is None:
            raise BadRequest(f"the workflow {request.workflow!r:.120} is not served here")
        return Invocation(workflow, request, self._replay(workflow, request, began), trace=trace_context(header))

    def _replay(self, workflow: Workflow, request: ExecuteRequest, began: float) -> Replay:
        """The state of an invocation whose request came at `began`, of the monotonic clock."""
        parallel, capture = workflow.is_async, self._capture_input
        if request.dry:
            return self._dry(request.steps, parallel=parallel, capture_input=False)
        watch = self._lost_steps.watch(workflow.name, request.run_id)
        if request.max_ops == 1:
            return self._plain(request.steps, parallel=parallel, capture_input=capture, watch=watch)
        until = None if request.budget_ms is None else began + request.budget_ms / 1000
        room = Room(request.max_ops, until)
        return self._several(request.steps, parallel=parallel, capture_input=capture, room=room, watch=watch)


def _answer(invocation: Invocation, op: str) -> Answer:
    if isinstance(invocation.replay, DryReplay):
        return 200, dry_answer(op, invocation.replay.called())
    if invocation.replay.failure is not None:
        log_failure(invocation, invocation.replay.failure)
    return 200, ops_answer(op, invocation.replay.asked_at)


def _refused(refusal: RequestRefused) -> Answer:
    _log.warning("a request was refused with %s: %s", refusal.status, refusal)
    return refusal.status, error_answer(str(refusal))


def _fault() -> Answer:
    _log.exception("the SDK failed to answer a request")
    return 500, error_answer("the SDK failed; see the log of the function")
