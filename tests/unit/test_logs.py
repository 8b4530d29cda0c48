"""Log lines: one JSON object each, fields kept, secrets masked wherever they come from."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from services.core.runtime.logs import configure_logs
from services.core.runtime.settings import LogSettings


@pytest.fixture(autouse=True)
def _root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_service_level_message_and_fields() -> None:
    stream = io.StringIO()
    configure_logs("ingest", LogSettings(), stream)
    logging.getLogger("a.b").info("event %s", "accepted", extra={"run": "01ABC", "count": 3})
    logging.getLogger("a.b").debug("not shown")
    (line,) = lines(stream)
    assert {"level": "info", "service": "ingest", "logger": "a.b", "message": "event accepted"}.items() <= line.items()
    assert (line["run"], line["count"]) == ("01ABC", 3)


def test_processes_of_one_service_are_told_apart() -> None:
    as_json, as_text = io.StringIO(), io.StringIO()
    for stream, form in ((as_json, "json"), (as_text, "text")):
        configure_logs("executor", LogSettings(format=form), stream, slot=3)
        logging.getLogger("a").info("here")
    (line,) = lines(as_json)
    assert (line["service"], line["process"]) == ("executor", 3)
    assert "executor-3 here" in as_text.getvalue()


def test_secrets_are_masked_in_message_fields_and_tracebacks() -> None:
    stream = io.StringIO()
    configure_logs("ingest", LogSettings(format="json"), stream)
    url = "postgresql://runr:hunter2@db:5432/runr"
    try:
        raise OSError(f"cannot reach {url}")
    except OSError:
        logging.getLogger("x").exception(
            "lost %s", url, extra={"header": "Bearer hunter2", "bus": "nats://hunter2@n:1"}
        )
    text = stream.getvalue()
    assert "hunter2" not in text
    assert "postgresql://runr:***@db:5432/runr" in text
    assert "OSError" in text


def test_text_is_for_terminals_and_json_for_everything_else() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    configure_logs("ingest", LogSettings(), terminal)
    logging.getLogger("x").warning("drained", extra={"runs": 2})
    assert terminal.getvalue().endswith("warning ingest    drained runs=2\n")
