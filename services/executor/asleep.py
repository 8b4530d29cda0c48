"""What stays in memory of a run that rests, so that it goes on without being read again.

That is no lease: the run is nobody's while it rests, and whoever comes first may take it. But who wakes it by the timer
that it set, or claims it when its wait was delivered, finds in the claimed row whether anything else has happened to
the run. If nothing has, what was known of the run when it was let go, and the result of the wait, is all that there is.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from sys import getsizeof
from uuid import UUID

import asyncpg

from services.core.domain.envelope import error_json
from services.core.domain.gate_rule import RunGates
from services.core.store.commit_item import CommitItem, Committed, WaitRow
from services.executor.lease import Lease

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BYTES = 48 * 1024
_OBJECTS_BYTES = 3_500
_STEP_BYTES = 128
_PLACED = frozenset("sec")
"""Waits that are steps by themselves, and have their place among the results when they begin."""
_NO_ERROR = error_json("Error", "the step failed")


class Asleep:
    """A lease that was let go over `wait`, and about how many bytes it takes."""

    __slots__ = ("_kind", "_lease", "_step", "_wait", "size")

    def __init__(self, lease: Lease, wait: WaitRow) -> None:
        lease.forget_parts()
        self._lease = lease
        self._wait, self._kind, self._step = wait.id, wait.kind, wait.sid
        memo = lease.memo
        # The event stands in the frame of its requests once more.
        self.size = _OBJECTS_BYTES + _STEP_BYTES * len(memo.ids) + memo.size + 2 * getsizeof(lease.event.data)

    @classmethod
    def of(cls, lease: Lease, item: CommitItem, done: Committed, wait: WaitRow) -> Asleep | None:
        """Of a lease that was let go with `item`. None: it is held, something was delivered to it meanwhile, not this
        wait alone is open, or there is much to keep.
        """
        if done.is_held or done.st != item.st or len(item.wait_rows) > 1:
            return None
        if lease.open_steps.keys() != ({wait.sid} if wait.sid else set()):
            return None
        if wait.kind in _PLACED and wait.seq + 1 != lease.steps:
            return None  # its result would stand before those of others
        asleep = cls(lease, wait)
        return asleep if asleep.size <= _MOST_BYTES else None

    @property
    def run(self) -> UUID:
        """Whose lease it was."""
        return self._lease.run

    @property
    def tenant(self) -> int:
        """Whose run it is."""
        return self._lease.tenant

    @property
    def workflow(self) -> int:
        """The id of the run's workflow."""
        return self._lease.entry.id

    @property
    def by_workers(self) -> bool:
        """Whether workers alone served its project when it was let go."""
        return self._lease.project.by_workers

    @property
    def resumed_epoch(self) -> int:
        """Under which it is held by whoever claims it next."""
        return self._lease.epoch + 1

    @property
    def resumed_fence(self) -> tuple[UUID, int, int, int, str | None]:
        """The run, and its epoch, rev and mail where nothing but the delivery of the wait has happened to it since; and
        the wait's step.
        """
        was = self._lease
        return was.run, was.epoch, was.rev, was.mail + 1, self._step

    def woken(self, row: asyncpg.Record, gone: Container[UUID]) -> Lease | None:
        """The lease of the row of `rt.live` that was claimed when these waits were over. None: something else has
        happened to the run since, or to another wait of it, so it must be read.
        """
        was = self._lease
        if self._wait not in gone:
            return None  # a backoff is left of a step that has its result already
        if (row["epoch"], row["rev"], row["mail"]) != (was.epoch + 1, was.rev, was.mail + 1):
            return None
        if self._step is not None and self._kind == "s":
            was.memo.completed(self._step, "null")
        return self._next(row, None)

    def resumed(self, row: asyncpg.Record, session: str | None) -> Lease | None:
        """The lease of a row of `claim_remembered`, meant for this session of a worker. None: the row does not hold the
        result of the wait, or it is not over, so the run must be read.
        """
        was, step = self._lease, self._step
        if self._kind == "b" and not row["open"]:
            return self._next(row, session)  # a backoff has no result
        if step is None or row["status"] is None:
            return None
        if row["status"] == "c":
            was.memo.completed(step, row["output"] or "null")
        else:
            was.memo.failed(step, row["error"] or _NO_ERROR)
        return self._next(row, session)

    def _next(self, row: asyncpg.Record, session: str | None) -> Lease:
        was = self._lease
        return replace(
            was,
            epoch=was.epoch + 1,
            mail=was.mail + 1,
            reached_ms=(row["taken"] - _EPOCH) // timedelta(milliseconds=1),
            size=row["bytes"],
            gates=RunGates(row["gv"], row["ga"], row["gb"]),
            open_steps={},
            span=None,
            leave=False,
            invocations=0,
            affinity=session,
            under_way=None,
            reporting={},
        )
