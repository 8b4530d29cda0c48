"""What a workflow function knows about its run: the `ctx` argument."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic

from .event import Data, Event
from .protocol import ExecuteRequest
from .replay import FailedAttempt, Replay
from .replay_log import ReplayLogger


class Context(Generic[Data]):
    """The run that is executed.

    `Context[Order]` says what the data of the event is taken for, with a TypedDict: `ctx.event["data"]` is an `Order`
    for type checkers. Nobody checks it on its way in. Of a plain `Context` it is a `dict[str, Any]`.

    `source` is one of api, event, cron, queue, invoke, replay; `replay` tells whether this run replays an earlier one;
    `test` whether a test event started it.

    `trace_context` holds the W3C trace headers of this invocation, `traceparent` among them, or nothing: with
    OpenTelemetry, `propagate.extract(ctx.trace_context)` is the context for spans of your own. It is another one in
    each invocation of a run, so use it for spans, never to decide anything.
    """

    def __init__(self, request: ExecuteRequest, replay: Replay, trace: Mapping[str, str] | None = None) -> None:
        self.event: Event[Data] = request.event
        self.workflow = request.workflow
        self.run_id = request.run_id
        self.source = request.source
        self.started_at = request.started_at
        self.parent_run_id = request.parent_run_id
        self.replay = request.replay
        self.test = request.test
        self.trace_context: Mapping[str, str] = dict(trace or {})
        self._attempt = request.attempt
        self._replay = replay

    @property
    def attempt(self) -> int:
        """Attempts so far, from 0: of the step about to run again, or of the function. A result resets the count."""
        return 0 if self._replay.has_progressed else self._attempt

    @property
    def traceparent(self) -> str | None:
        """The W3C `traceparent` of this invocation; None where the engine, or the platform in between, sends none."""
        return self.trace_context.get("traceparent")

    @property
    def is_replaying(self) -> bool:
        """Whether the code running now ran in an earlier invocation: it has memoized steps before it still."""
        return self._replay.is_replaying

    @cached_property
    def logger(self) -> logging.Logger:
        """The logger `runr_workflows.workflow.<name>`, silent during replay; records carry `run_id`."""
        return ReplayLogger(f"runr_workflows.workflow.{self.workflow}", self._replay, self.run_id)

    @property
    def failure(self) -> FailedAttempt | None:
        """The attempt that has failed in this invocation, of the function or of the step that ended it."""
        return self._replay.failure

    def keeper(self) -> Replay:
        """Says whether the invocation is over: for what is finished after its function."""
        return self._replay

    def introduce(self) -> None:
        """Tells the replay whose it is: middleware wants to know, and nobody else."""
        replay: Any = self._replay
        replay.context = self

    def close(self) -> None:
        """The invocation has ended: log lines held back so far are emitted or dropped."""
        logger = self.__dict__.get("logger")
        if isinstance(logger, ReplayLogger):
            logger.flush()
