"""What somebody may have meant who wrote a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 2
_LIKE = 0.7


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean a or b?)`, or nothing where no known name is like it."""
    import difflib  # a service never asks

    close = difflib.get_close_matches(word, sorted(set(known)), n=_MOST, cutoff=_LIKE)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
