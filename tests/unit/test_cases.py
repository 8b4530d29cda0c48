"""Cases of `tests/vectors/data/cases.jsonl` about rules alone. Those about a running engine are tests of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.vectors.cases import checks

DATA = Path(__file__).parent.parent / "vectors" / "data" / "cases.jsonl"

RULES = (
    "case-01-cron-next-in-the-past",
    "case-02-cron-midnight-gap-loop",
    "case-05-cron-fold-interval-continues",
    "case-07-cron-six-fields-refused",
    "case-08-cron-dom-dow-or",
    "case-14-idempotency-key-types",
    "case-18-wait-match-absent-both",
    "case-29-backoff-table",
    "case-31-step-id-collision",
    "case-33-broad-except",
    "case-36-duration-table",
    "case-38-nan-timestamp",
    "case-40-strict-expressions",
)


@pytest.mark.parametrize("id", RULES)
def test_rule(id: str) -> None:
    (check,) = [check for check in checks(map(json.loads, DATA.read_text().splitlines())) if check.id == id]
    check.run()
