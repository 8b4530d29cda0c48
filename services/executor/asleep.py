"""What stays in memory of a run that sleeps for a moment, so that it goes on without being read again.

That is no lease: the run is nobody's while it sleeps, and whoever comes first may take it. But who wakes it by the
timer that it set finds in the claimed row whether anything else has happened to the run. If nothing has, what was known
of the run when it was let go, and the result of the sleep, is all that there is.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg

from services.core.domain.gate_rule import RunGates
from services.core.store.commit_item import CommitItem, Committed, WaitRow
from services.executor.lease import Lease

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BYTES = 16 * 1024
_OBJECTS_BYTES = 2 * 1024


class Asleep:
    """A lease that was let go over `wait`, a sleep or a backoff, and about how many bytes it takes."""

    __slots__ = ("_lease", "_wait", "size")

    def __init__(self, lease: Lease, wait: WaitRow) -> None:
        self._lease = lease
        self._wait = wait
        self.size = _OBJECTS_BYTES + lease.memo.size + len(lease.event.data)

    @classmethod
    def of(cls, lease: Lease, item: CommitItem, done: Committed, wait: WaitRow) -> Asleep | None:
        """Of a lease that has just committed `item`. None: more is open than this wait, or there is much to keep."""
        if done.st != item.st or len(item.wait_rows) > 1 or any(sid != wait.sid for sid in lease.open_steps):
            return None
        if any(row.seq > wait.seq for row in item.step_rows):
            return None  # its result would stand before theirs
        asleep = cls(lease, wait)
        return asleep if asleep.size <= _MOST_BYTES else None

    def woken(self, row: asyncpg.Record) -> Lease | None:
        """The lease of the row of `rt.live` that was claimed when the wait was over. None: something else has happened
        to the run since, so it must be read.
        """
        was, wait = self._lease, self._wait
        if (row["epoch"], row["rev"], row["mail"]) != (was.epoch + 1, was.rev, was.mail + 1):
            return None
        if wait.sid is not None and wait.kind == "s":
            was.memo.completed(wait.sid, "null")
        return replace(
            was,
            epoch=row["epoch"],
            mail=row["mail"],
            reached_ms=(row["taken"] - _EPOCH) // timedelta(milliseconds=1),
            size=row["bytes"],
            gates=RunGates(row["gv"], row["ga"], row["gb"]),
            open_steps={},
            span=None,
            leave=False,
            invocations=0,
            affinity=None,
            under_way=None,
            reporting={},
        )
