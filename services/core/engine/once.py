"""Carries out once what callers name, over whatever is killed in between (engine section 3).

A row is written before the write begins and completed after it. Where the process dies between, the row says so: the
write is carried out again only where that leads to the same, and else nobody is told that it did not happen.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID, uuid4

from services.core.domain.caller import Caller
from services.core.domain.errors import DomainError, Unavailable
from services.core.domain.named_write import (
    Again,
    again,
    answer_not_kept,
    hold_ms,
    in_progress,
    not_known,
    other_write,
)
from services.core.runtime.ids import UlidFactory
from services.core.runtime.sealing import Sealer
from services.core.store.named_writes import Beginning, NamedWrites, WriteKey

# Events of one request have ids in a row.
_ROOM = 1 << 16

CarryOut = Callable[[UUID, bool], Awaitable[bytes]]
"""Carries a write out, given the id of what it makes and whether it may have been carried out before; its answer."""


class StoredOnce:
    """Carries out each named write once. Answers are sealed where they are kept: they are a tenant's data."""

    def __init__(self, writes: NamedWrites, sealer: Sealer, ids: UlidFactory) -> None:
        self._writes = writes
        self._sealer = sealer
        self._ids = ids

    async def perform(
        self,
        caller: Caller,
        method: str,
        name: str,
        asked: bytes,
        carry_out: CarryOut,
        *,
        keeps_answer: bool,
        left_s: float | None = None,
    ) -> bytes:
        """The answer of a write, now or of when it was carried out. `asked` is the request, `left_s` how long its
        caller waits.

        Raises what it was refused with, Conflict while it is carried out and where its end is not known, InvalidInput
        for a name of another request, and Unavailable.
        """
        key = WriteKey(caller.tenant, caller.token_id, method, name)
        holder = uuid4()
        begun = await self._writes.begin(
            key,
            hashlib.sha256(asked).digest(),
            id=self._ids.block(_ROOM),
            holder=holder,
            hold_ms=hold_ms(method, None if left_s is None else left_s * 1_000),
            repeats=again(method) is Again.SAME,
        )
        if begun.result == "done":
            return self._kept(key, begun)
        _refuse(begun)
        is_again = begun.result == "again"
        try:
            answer = await carry_out(begun.id, is_again)
        except BaseException as error:
            # That it is refused now says nothing of the time before: forgotten, it could happen under another id.
            nothing_happened = _is_refusal(error) and not is_again
            await asyncio.shield(self._ended(key, holder, nothing_happened))
            raise
        with suppress(Unavailable):  # it is carried out, and its caller must hear so
            sealed = self._sealer.seal(answer.decode("latin-1"), _place(key)) if keeps_answer else None
            await self._writes.done(key, holder, sealed)
        return answer

    def _kept(self, key: WriteKey, begun: Beginning) -> bytes:
        if begun.answer is None:
            raise answer_not_kept()
        return self._sealer.open(begun.answer, _place(key)).encode("latin-1")

    async def _ended(self, key: WriteKey, holder: UUID, nothing_happened: bool) -> None:
        """It was refused, or cut off."""
        with suppress(Unavailable):
            if nothing_happened:
                await self._writes.forget(key, holder)
            else:
                await self._writes.let_go(key, holder)


def _refuse(begun: Beginning) -> None:
    if begun.result == "other":
        raise other_write()
    if begun.result == "held":
        raise in_progress()
    if begun.result == "unknown":
        raise not_known()


def _is_refusal(error: BaseException) -> bool:
    """Whether an error says that this time nothing has happened."""
    return isinstance(error, DomainError) and not isinstance(error, Unavailable) and type(error) is not DomainError


def _place(key: WriteKey) -> str:
    return f"named_write/{key.tenant}/{key.token}/{key.method}/{key.name}"
