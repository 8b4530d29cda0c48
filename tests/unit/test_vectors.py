"""The project's own copy of the vectors, through the engine and the SDK, and the runner itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vectors.check import Hang, Unhandled, hang_guard
from tests.vectors.prose import allowed, make
from tests.vectors.runner import run_folder

DATA = Path(__file__).parent.parent / "vectors" / "data"

NEED_A_RUNNING_ENGINE = {
    "case-09-cron-tick-drift",
    "case-11-event-dedup-sequence",
    "case-13-idempotency-dead-run",
    "case-15-wait-vs-event-race",
    "case-20-late-answer-after-lease-loss",
    "case-22-crash-between-persist-and-dispatch",
    "case-25-slot-handover",
    "case-26-deadlock-free-invoke",
    "case-35-sleep-duration-change",
}
"""Rows of `cases.jsonl` that are stories about services, not rules."""


def test_every_row_passes() -> None:
    report = run_folder(DATA)

    assert report.failed == {}
    assert report.unknown_files == []
    assert set(report.unhandled) == NEED_A_RUNNING_ENGINE
    assert len(report.passed) > 700


def test_a_wrong_row_fails_and_names_itself(tmp_path: Path) -> None:
    rows = [{"id": "wrong", "input": "1s", "expected_ms": 1}, {"id": "right", "input": "1s", "expected_ms": 1000}]
    (tmp_path / "durations.json").write_text(json.dumps({"cases": rows}))

    report = run_folder(tmp_path)

    assert not report.ok
    assert set(report.failed) == {"wrong", "wrong [sdk python]"}
    assert list(report.lines())[-1] == "2 passed, 2 failed"


def test_an_unknown_file_is_not_ok(tmp_path: Path) -> None:
    (tmp_path / "tea_leaves.json").write_text("{}")

    report = run_folder(tmp_path)

    assert report.unknown_files == ["tea_leaves.json"]
    assert not report.ok


def test_prose_that_nobody_understands_is_counted_and_does_not_fail(tmp_path: Path) -> None:
    row = {"id": "odd", "make": "a body sung to the tune of a known song", "expected": "ok"}
    (tmp_path / "event_names.json").write_text(json.dumps({"names": [], "events": [row]}))

    report = run_folder(tmp_path)

    assert report.ok
    assert list(report.lines())[-2:] == ["1 unhandled", "0 passed, 0 failed"]


def test_a_file_of_another_shape_fails(tmp_path: Path) -> None:
    (tmp_path / "cron.json").write_text('{"rows": []}')

    assert set(run_folder(tmp_path).failed) == {"cron.json"}


def test_the_hang_guard_ends_a_computation() -> None:
    with pytest.raises(Hang):
        _compute_for_ever()


@pytest.mark.parametrize(
    ("text", "names", "value"),
    [
        ('"a"*3', {}, "aaa"),
        ('"("*n + "true" + ")"*n', {"n": 2}, "((true))"),
        ('" || ".join(["x == %d" % i for i in range(n)])', {"n": 3}, "x == 0 || x == 1 || x == 2"),
        ('"a\\x00b"', {}, "a\0b"),
        ('"x" + str(n - 1)', {"n": 5}, "x4"),
    ],
)
def test_made_values(text: str, names: dict[str, int], value: str) -> None:
    assert make(text, names) == value


@pytest.mark.parametrize("text", ["__import__('os')", "open('x')", "().__class__", "n", '"a"*10**12', "1 if 1 else 2"])
def test_nothing_else_is_evaluated(text: str) -> None:
    with pytest.raises(Unhandled):
        make(text)


@pytest.mark.parametrize(
    ("words", "verdicts"),
    [
        ("ok, data == {}", {"ok"}),
        ("error or true within 100 ms; never a crash", {"error", "true"}),
        ("422 naming index 56, none of the 100 processed", {"error"}),
        ("400 or ok; never 500", {"error", "ok"}),
        ("two events", set()),
    ],
)
def test_expectations_in_words(words: str, verdicts: set[str]) -> None:
    assert allowed(words) == verdicts


def _compute_for_ever() -> None:
    with hang_guard(0.05):
        while True:
            pass
