"""How long random input is tried: a fixed few inputs, the same each time, or `FUZZ_SECONDS` of ever new ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

_ROUND = 100


def seconds() -> float | None:
    """How long to go on; None: a fixed few."""
    asked = os.environ.get("FUZZ_SECONDS")
    return float(asked) if asked else None


def fuzz(judge: Callable[[Any], None], values: st.SearchStrategy[Any], *, few: int, share: float) -> None:
    """Has values judged: a `few`, or as many as fit into a `share` of the time. The judge raises."""
    limit = seconds()
    if limit is None:
        _round(judge, values, few, derandomize=True)
        return
    until = time.monotonic() + limit * share
    while time.monotonic() < until:
        _round(judge, values, _ROUND, derandomize=False)


def _round(judge: Callable[[Any], None], values: st.SearchStrategy[Any], count: int, *, derandomize: bool) -> None:
    @settings(
        max_examples=count,
        derandomize=derandomize,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=not derandomize,
    )
    @given(value=values)
    def judged(value: Any) -> None:
        judge(value)

    judged()
