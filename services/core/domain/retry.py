"""How long a failed attempt waits before the next (engine section 5)."""

from __future__ import annotations

BASE_MS = 2000
CAP_MS = 600_000
_DOUBLINGS_TO_CAP = 9


def backoff_ms(attempt: int, jitter: float) -> int:
    """Milliseconds before attempt `attempt` + 1: min(2 s * 2^(attempt-1), 600 s) * jitter, so at most 720 s.

    `attempt` counts the attempts made and is at least 1; `jitter` is the caller's draw from 0.8 to 1.2.
    """
    if attempt < 1:
        raise ValueError(f"attempt must be at least 1, not {attempt}")
    if not 0.8 <= jitter <= 1.2:
        raise ValueError(f"jitter must be 0.8 to 1.2, not {jitter}")
    base = min(BASE_MS << min(attempt - 1, _DOUBLINGS_TO_CAP), CAP_MS)
    return int(base * jitter + 0.5)
