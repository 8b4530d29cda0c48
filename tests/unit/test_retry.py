"""The backoff between attempts."""

from __future__ import annotations

import pytest

from services.core.domain.retry import backoff_ms


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 512), (10, 600), (1100, 600)])
def test_doubles_to_the_cap_and_jitters_after_it(attempt: int, seconds: int) -> None:
    assert backoff_ms(attempt, 1.0) == seconds * 1000
    assert backoff_ms(attempt, 0.8) == seconds * 800
    assert backoff_ms(attempt, 1.2) == seconds * 1200


@pytest.mark.parametrize(("attempt", "jitter"), [(0, 1.0), (-1, 1.0), (1, 0.79), (1, 1.21)])
def test_refuses_what_no_caller_means(attempt: int, jitter: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        backoff_ms(attempt, jitter)
