"""Leases on their way into memory: taken in the database, while what is stored of their runs is still being read.

The heartbeat lets go of runs that nobody here knows of (rulings C4). Reading may take longer than it waits for that, so
whoever reads says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

Tenure = tuple[UUID, int]
"""A run, and the epoch under which it is held."""


class Arriving:
    """The tenures that are being read now, for one owner."""

    def __init__(self) -> None:
        self._reading: Counter[Tenure] = Counter()

    def __iter__(self) -> Iterator[Tenure]:
        return iter(self._reading)

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
