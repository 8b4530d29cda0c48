"""The backoff between attempts."""

from __future__ import annotations

import re

import pytest

from services.core.domain.definition import DEFAULT_RETRIES
from services.core.domain.retry import backoff_ms
from tests.support.pages import page


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 512), (10, 600), (1100, 600)])
def test_doubles_to_the_cap_and_jitters_after_it(attempt: int, seconds: int) -> None:
    assert backoff_ms(attempt, 1.0) == seconds * 1000
    assert backoff_ms(attempt, 0.8) == seconds * 800
    assert backoff_ms(attempt, 1.2) == seconds * 1200


@pytest.mark.parametrize(("attempt", "jitter"), [(0, 1.0), (-1, 1.0), (1, 0.79), (1, 1.21)])
def test_refuses_what_no_caller_means(attempt: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        backoff_ms(attempt, jitter)


def test_how_long_a_function_may_be_away_is_what_the_pages_say() -> None:
    def away_s(retries: int) -> int:
        return sum(backoff_ms(attempt, 1.0) for attempt in range(1, retries + 1)) // 1000

    told = re.findall(r"^\| (\d+) \| (\d+) s \|$", page("docs/how-to/retries-and-errors.md").text, re.MULTILINE)
    assert {int(retries): int(seconds) for retries, seconds in told} == {n: away_s(n) for n in (3, 5, 8, 10, 20)}
    for name in ("README.md", "docs/how-to/deploy-changed-code.md", "docs/operations.md"):
        assert f"about {away_s(DEFAULT_RETRIES)} s" in " ".join(page(name).text.split())
