"""What is told of steps that were not asked for, caught from the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

SIGN = "did not ask for"


@contextmanager
def alarms() -> Iterator[list[str]]:
    """The warnings that are told meanwhile."""
    told: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if SIGN in text:
                told.append(text)

    handler, log = Handler(), logging.getLogger("runr_workflows")
    log.addHandler(handler)
    try:
        yield told
    finally:
        log.removeHandler(handler)
