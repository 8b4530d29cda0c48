"""Who is hit by which event of a request: as if each event were looked at by itself, in order."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import asyncpg
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.engine.find_waits import Hits

WAITS = st.lists(
    st.tuples(st.sampled_from("ex"), st.integers(0, 4), st.frozensets(st.integers(0, 5), max_size=4)), max_size=12
)
"""Of each wait the kind, the run, and the events that it takes."""


def in_order(waits: list[tuple[str, int, frozenset[int]]]) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """Runs cancelled and waits resumed by each event: cancel, then resume, event after event (engine section 6)."""
    cancelled, consumed = set[int](), set[int]()
    cancels, resumes = dict[int, set[int]](), dict[int, set[int]]()
    for event in range(6):
        for kind, run, takes in waits:
            if kind == "x" and event in takes and run not in cancelled:
                cancelled.add(run)
                cancels.setdefault(event, set()).add(run)
        for wait, (kind, run, takes) in enumerate(waits):
            if kind == "e" and event in takes and run not in cancelled and wait not in consumed:
                consumed.add(wait)
                resumes.setdefault(event, set()).add(wait)
    return cancels, resumes


@given(waits=WAITS)
@settings(max_examples=500, deadline=None)
def test_the_first_event_that_a_wait_takes_has_it_and_a_cancelled_run_gets_nothing_more(
    waits: list[tuple[str, int, frozenset[int]]],
) -> None:
    hits = Hits()
    for wait, (kind, run, takes) in enumerate(waits):
        if takes:
            row: dict[str, Any] = {"id": UUID(int=wait), "run": UUID(int=run), "kind": kind}
            hits.add(min(takes), cast(asyncpg.Record, row))
    cancels, resumes = hits.by_event()
    assert (
        {event: {run.int for run in runs} for event, runs in cancels.items()},
        {event: {wait.id.int for wait in found} for event, found in resumes.items()},
    ) == in_order(waits)
