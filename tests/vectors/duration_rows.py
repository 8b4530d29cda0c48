"""`durations.json`: input to milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from runr_workflows.duration import parse_duration as sdk_parse_duration

from services.core.domain.duration import DurationError, parse_duration
from tests.vectors.check import Check, expect, outcome
from tests.vectors.prose import made_text


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine and the Python SDK."""
    for row in document["cases"]:
        yield Check(row["id"], partial(_check_engine, row))
        yield Check(f"{row['id']} [sdk python]", partial(_check_sdk, row))


def _check_engine(row: Any) -> None:
    expect(outcome(lambda: parse_duration(_input(row)), DurationError), row["expected_ms"])


def _check_sdk(row: Any) -> None:
    expect(outcome(lambda: sdk_parse_duration(_input(row)), ValueError), row["expected_ms"])


def _input(row: Any) -> object:
    return made_text(row["make"]) if "make" in row else row["input"]
