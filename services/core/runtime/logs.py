"""Log lines: one JSON object each, or plain text on a terminal, with the trace id and without secrets.

Values travel as `extra={...}` and become fields. Passwords in URLs and bearer tokens are masked in every text, as the
last net: no code should log them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from opentelemetry import trace

from services.core.runtime.settings import LogSettings

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MASKS = (
    (re.compile(r"(://[^\s:/@]*:)[^\s@/]+@"), r"\1***@"),
    (re.compile(r"(://)[^\s:/@]+@"), r"\1***@"),
    (re.compile(r"(?i)(bearer\s+)[A-Za-z0-9._~+/=-]+"), r"\1***"),
)


def mask(text: str) -> str:
    """`text` without passwords in URLs and without bearer tokens."""
    for pattern, replacement in _MASKS:
        text = pattern.sub(replacement, text)
    return text


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        fields["trace_id"] = f"{context.trace_id:032x}"
    return fields


class JsonFormatter(logging.Formatter):
    """`{"time", "level", "service", "process"?, "logger", "message", …extra, "trace_id"?, "error"?}` in one line."""

    def __init__(self, service: str, slot: int | None = None) -> None:
        super().__init__()
        self._who = {"service": service} if slot is None else {"service": service, "process": slot}

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **self._who,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return mask(json.dumps(line, ensure_ascii=False, default=str))


class TextFormatter(logging.Formatter):
    """For people: time, level, service, message, then the fields."""

    def __init__(self, service: str, slot: int | None = None) -> None:
        super().__init__()
        self._service = service if slot is None else f"{service}-{slot}"

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, a traceback on lines of its own."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        text = f"{time} {record.levelname.lower():7} {self._service:9} {record.getMessage()}{fields}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return mask(text)


def configure_logs(
    service: str, settings: LogSettings, stream: TextIO = sys.stderr, *, slot: int | None = None
) -> None:
    """Points the root logger at `stream`; calling again replaces the former handler. `slot` tells processes apart."""
    as_json = settings.format == "json" or (settings.format == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter(service, slot) if as_json else TextFormatter(service, slot))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
