"""The Python SDK judges cron lines as the engine does, in the same words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from runr_workflows.cron_line import cron_fault

from services.core.domain.cron import CronError, parse_cron

NUMBERS = st.integers(0, 62).map(str)
NAMES = st.sampled_from(["JAN", "dec", "Sun", "FRI", "MONDAY", "L", "LW", "", "?", "\u0661"])
ENDS = NUMBERS | NAMES
RANGES = st.tuples(ENDS, ENDS).map("-".join)
ITEMS = st.just("*") | ENDS | RANGES
STEPPED = ITEMS | st.tuples(ITEMS, st.integers(0, 99).map(str) | st.just("")).map("/".join)
FIELDS = st.lists(STEPPED, min_size=1, max_size=3).map(",".join)
DAYS = st.sampled_from(["*", "30", "31", "30,31", "L", "31,L", "*/40", "29"])
MONTHS = st.sampled_from(["2", "FEB", "4,6", "1-12", "*", "2,4", "*/20"])
LINES = (
    st.lists(FIELDS, min_size=5, max_size=5).map(" ".join)
    | st.tuples(DAYS, MONTHS, st.sampled_from(["*", "1", "*/2"])).map(lambda each: " ".join(("0", "0", *each)))
    | st.lists(st.sampled_from(["*", "@daily", " ", "\t", "5", "\n", "* " * 600]), max_size=7).map(" ".join)
)


def engine_fault(line: str) -> str | None:
    try:
        parse_cron(line)
    except CronError as error:
        return error.message
    return None


@given(LINES)
def test_a_cron_line_has_one_verdict(line: str) -> None:
    assert cron_fault(line) == engine_fault(line)
