"""Carrying out a batch so that no item's fault is another's: what the database refuses is found by halves; where one
would have to wait for somebody else's transaction, each goes by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import asyncpg

from services.core.domain.errors import InvalidInput, Unavailable
from services.core.engine.group_commit import GroupCommit, Waiting
from services.core.engine.retrying import retrying

log = logging.getLogger(__name__)

LOCK_MS = 250
"""So long a batch waits for a lock. Who holds one longer is waited for apart."""

PATIENT_LOCK_MS = 2_000

_REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)


class Busy(Exception):
    """One of a batch has to wait for somebody else's transaction."""


@contextmanager
def waiting_for_locks(*, patient: bool) -> Iterator[int]:
    """For how many milliseconds to wait for a lock. Where one is not to be had by then this raises Busy, or for who is
    patient what the driver does.
    """
    try:
        yield PATIENT_LOCK_MS if patient else LOCK_MS
    except asyncpg.LockNotAvailableError:
        if patient:
            raise
        raise Busy from None


class Resendable(Protocol):
    """An item of a batch."""

    @property
    def again(self) -> bool:
        """Whether it may have been carried out by an earlier attempt, whose answer was lost."""
        ...


Item = TypeVar("Item", bound=Resendable)
Result = TypeVar("Result")


class Once(Protocol[Item, Result]):
    """One attempt at the items of a batch that are not settled; it settles them."""

    async def __call__(self, batch: Sequence[Waiting[Item, Result]], *, again: bool, patient: bool) -> None:
        """`again`: any of them may have been carried out already. Raises Busy rather than to wait for a lock for long,
        unless it is `patient`; Unavailable; and what the driver raises for what the database refuses.
        """
        ...


class Isolating(Generic[Item, Result]):
    """Commits batches: once more after a passing fault, halved after one that is an item's own."""

    def __init__(self, once: Once[Item, Result]) -> None:
        self._once = once

    async def commit(
        self, batch: Sequence[Waiting[Item, Result]], *, aside: GroupCommit[Item, Result] | None = None
    ) -> None:
        """Commit these and settle each. Raises Unavailable, which is then the end of those that are not settled.

        A batch in which one would have to wait for somebody else is handed to `aside`, where each goes by itself;
        without that it is waited for.
        """
        await self._carry_out(batch, aside, again=any(waiting.item.again for waiting in batch))

    async def _carry_out(
        self, batch: Sequence[Waiting[Item, Result]], aside: GroupCommit[Item, Result] | None, *, again: bool
    ) -> None:
        left = [waiting for waiting in batch if not waiting.settled]
        if not left:
            return
        patient = aside is None
        try:
            await retrying(lambda attempt: self._once(left, again=again or attempt > 0, patient=patient))
        except asyncpg.UniqueViolationError as error:
            if again:
                await self._split(left, aside, error, again=True)
            else:  # one of the ids is there already: from an attempt that took longer than the one after it
                await self._carry_out(left, aside, again=True)
        except (Busy, *_REFUSED) as error:
            await self._split(left, aside, error, again=again)

    async def _split(
        self,
        batch: Sequence[Waiting[Item, Result]],
        aside: GroupCommit[Item, Result] | None,
        error: Exception,
        *,
        again: bool,
    ) -> None:
        if isinstance(error, Busy) and aside is not None:
            for waiting in batch:
                _hand_over(waiting, aside)
        elif len(batch) > 1:
            middle = len(batch) // 2
            await self._carry_out(batch[:middle], aside, again=again)
            await self._carry_out(batch[middle:], aside, again=again)
        elif isinstance(error, asyncpg.UniqueViolationError):
            batch[0].settle(id_is_taken())
        else:
            log.error("the database refuses a request", extra={"tenant": batch[0].key}, exc_info=error)
            batch[0].settle(error)


def id_is_taken() -> InvalidInput:
    """Why a request is refused whose sender has given its id to another one before."""
    return InvalidInput.of("id", "is taken: an id is made for one request")


def _hand_over(waiting: Waiting[Item, Result], line: GroupCommit[Item, Result]) -> None:
    try:
        line.submit(waiting.item, key=waiting.key, size=waiting.size, tell=waiting.settle)
    except Unavailable as full:
        waiting.settle(full)
