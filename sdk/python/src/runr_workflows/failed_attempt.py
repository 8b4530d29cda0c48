"""What the log of a function says of an attempt that failed."""

from __future__ import annotations

import logging

from .invocation import Invocation
from .replay import FailedAttempt

_log = logging.getLogger("runr_workflows")


def log_failure(invocation: Invocation, failure: FailedAttempt) -> None:
    """A line for an attempt that failed, counted from 1: whoever runs the function sees it without the engine.

    Below it the traceback, unless the error was raised on purpose. As text: the error itself would keep its frames.
    """
    _log.warning(
        "workflow %s, run %s%s: attempt %d failed: %s: %s%s",
        invocation.request.workflow,
        invocation.request.run_id,
        "" if failure.step_id is None else f", step {failure.step_id}",
        invocation.context.attempt + 1,
        failure.name,
        failure.message,
        "" if failure.traceback is None else "\n" + failure.traceback.rstrip("\n"),
    )
