"""Leases on their way into memory: asked for, or taken in the database while what is stored of their runs is still
being read.

The heartbeat lets go of runs that nobody here knows of (rulings C4). Reading may take longer than it waits for that, so
whoever reads says so. And whoever asks says so, so that it need not wait where nobody is under way who could bring
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

Tenure = tuple[UUID, int]
"""A run, and the epoch under which it is held."""


class Arriving:
    """The tenures that are being read now, and the claims that are under way, for one owner."""

    def __init__(self) -> None:
        self._reading: Counter[Tenure] = Counter()
        self._asking: set[object] = set()
        self.in_doubt: Callable[[], None] = lambda: None
        """Called when a claim has failed: it may have been committed."""

    def __iter__(self) -> Iterator[Tenure]:
        return iter(self._reading)

    @property
    def under_way(self) -> Collection[object]:
        """The claims that have not come to an end. They differ from all that come later."""
        return frozenset(self._asking)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Runs are claimed in this block; at its end those that came are accepted, let go, or known to nobody."""
        claim = object()
        self._asking.add(claim)
        try:
            yield
        except Exception:
            self.in_doubt()
            raise
        finally:
            self._asking.discard(claim)

    @contextmanager
    def reading(self, tenures: Iterable[Tenure]) -> Iterator[None]:
        """These are read until the end of the block; by then they are accepted, or known to nobody."""
        begun = list(tenures)
        self._reading.update(begun)
        try:
            yield
        finally:
            self._reading.subtract(begun)
            for tenure in begun:
                if self._reading[tenure] <= 0:
                    del self._reading[tenure]
