"""What was logged while a test ran."""

from __future__ import annotations

import logging

import pytest


def complaints(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """All warnings and errors, but those of gRPC about the loop of an earlier test: it has one queue for all loops of a
    process, and tells those that are closed by now what has come for them.
    """
    return [record for record in caplog.records if record.levelno > logging.INFO and not _of_a_closed_loop(record)]


def _of_a_closed_loop(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return record.name == "asyncio" and isinstance(error, RuntimeError) and str(error) == "Event loop is closed"
