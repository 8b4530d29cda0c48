"""`cron.json`: the next fires after an instant, and what is refused at sync."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from services.core.domain.cron import CronError, next_fires, parse_cron
from tests.vectors.check import Check, Unhandled, expect, outcome
from tests.vectors.prose import allowed


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine."""
    for row in document["cases"]:
        yield Check(row["id"], partial(check_row, row))


def check_row(row: Any) -> None:
    """One row of kind `next` or `validate`."""
    expr, timezone, expected = row["expr"], row.get("timezone"), row["expected"]
    if isinstance(expected, list):
        after = datetime.fromisoformat(row["from"])
        fires = [_text(fire) for fire in next_fires(parse_cron(expr, timezone), after, len(expected))]
        expect(fires, expected)
        return
    verdicts = allowed(expected)
    if not verdicts:
        raise Unhandled(expected)
    refused = outcome(lambda: parse_cron(expr, timezone), CronError) == "error"
    assert ("error" if refused else "ok") in verdicts, f"expected {expected}, got {'error' if refused else 'ok'}"
    if not refused:
        assert next_fires(parse_cron(expr, timezone), datetime(2026, 1, 1, tzinfo=UTC), 1), "accepted and never fires"


def _text(fire: datetime) -> str:
    return fire.isoformat().replace("+00:00", "Z")
