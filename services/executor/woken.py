"""What came of timers that an executor fired itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg


@dataclass(frozen=True, slots=True)
class Woken:
    """What came of timers: those that are still there, with the milliseconds until they are due; the runs that got
    something; and rows of `rt.live`, of those that were claimed or that only workers serve.
    """

    left: list[tuple[UUID, int]]
    fired: list[asyncpg.Record]
    runs: list[asyncpg.Record]

    @classmethod
    def of(cls, rows: Sequence[asyncpg.Record]) -> Woken:
        """Of what `rt.wake_v1` answers."""
        (told,) = (row for row in rows if row["left_wait"] is not None)
        left = [(UUID(int=wait.int), ms) for wait, ms in zip(told["left_wait"], told["left_ms"], strict=True)]
        runs = [row["claimed"] for row in rows if row["claimed"] is not None]
        return cls(left, [row for row in rows if row["run"] is not None], runs)

    def gone(self, waits: Iterable[UUID]) -> set[UUID]:
        """Those of the timers, where these were asked for, that are not there any more."""
        return set(waits).difference(wait for wait, _ in self.left)
