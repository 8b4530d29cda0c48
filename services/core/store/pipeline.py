"""The commit pipeline: what waits, from all runs of this process, becomes one set-based transaction.

Natural group commit: a batch is what piled up while the last one was committed; there is no timer, so a lone step
waits for nothing. One item a run is in a batch (rulings C7). A batch that the database refuses is halved until the
culprit stands alone (C23); a batch whose answer was lost is looked up, never blindly sent again (C4).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.store.batch import alone, delayed, prepared
from services.core.store.commit_item import CommitItem, Committed, Fenced, StorageRefused
from services.core.store.database import ServerChanged, connect, server_identity, translated
from services.core.store.pipeline_meter import PipelineMeter
from services.core.store.queries import queries

log = logging.getLogger(__name__)

_REFUSED = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)
_BUSY_PAUSE_S = 0.01
_LONG_S = 0.5
"""Who has waited so long for its commit had to do with an outage, and tells that."""

_SETTINGS = {"enable_memoize": "off"}
"""Each run and step of a batch is another one: to remember what was found for it costs more than it saves."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """An item whose end somebody awaits, since when. `in_doubt`: it was sent once and the answer was lost."""

    item: CommitItem
    future: asyncio.Future[Committed]
    since_s: float
    in_doubt: bool = False


class Pipeline:
    """Commits items of one owner over one connection of its own."""

    def __init__(
        self,
        dsn: str,
        *,
        owner: int,
        max_items: int = 256,
        max_bytes: int = 4 * 1024 * 1024,
        meter: PipelineMeter | None = None,
    ) -> None:
        self._meter = meter or PipelineMeter()
        self._meter.watch(lambda: len(self._queue))
        self._dsn = dsn
        self._owner = owner
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._queue: deque[_Waiting] = deque()
        self._wake = asyncio.Event()
        self._connection: asyncpg.Connection | None = None
        self._identity: str | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def backlog(self) -> int:
        """Items that wait for their batch."""
        return len(self._queue)

    async def commit(self, item: CommitItem) -> Committed:
        """Commit `item`. Returns after the commit. Raises Fenced (nothing written, not ours) or StorageRefused."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # once: asking costs a system call
        future: asyncio.Future[Committed] = self._loop.create_future()
        self._queue.append(_Waiting(item, future, time.monotonic()))
        self._wake.set()
        return await future

    async def run(self) -> None:
        """Serve commits until cancelled. A lost connection is made again, for as long as it takes. Raises
        ServerChanged.
        """
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while batch := self._take():
                    await self._settle(batch)
                del batch  # nobody holds what was committed while nothing comes
        finally:
            if self._connection is not None:
                self._connection.terminate()
            for waiting in self._queue:
                waiting.future.cancel()

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        later: list[_Waiting] = []
        runs: set[UUID] = set()
        size = 0
        while self._queue and len(batch) < self._max_items and (not batch or size < self._max_bytes):
            waiting = self._queue.popleft()
            if waiting.future.cancelled():
                continue
            if waiting.item.run in runs:
                later.append(waiting)
                continue
            runs.add(waiting.item.run)
            size += waiting.item.weight
            batch.append(waiting)
        self._queue.extendleft(reversed(later))
        return batch

    async def _settle(self, batch: list[_Waiting]) -> None:
        """Bring every item of the batch to its end, or back into the queue."""
        sent_s = time.monotonic()
        try:
            results = await self._execute(batch)
        except _REFUSED as error:
            await self._halve(batch, error)
            return
        now_s = time.monotonic()
        self._meter.batch(len(batch), now_s - sent_s)
        for waiting in batch:
            self._answer(waiting, results.get(waiting.item.run), now_s)

    def _answer(self, waiting: _Waiting, row: asyncpg.Record | None, now_s: float) -> None:
        if waiting.future.done():
            return
        match _result(row):
            case "d":
                assert row is not None
                self._meter.committed(waiting.item, now_s - waiting.since_s)
                waiting.future.set_result(Committed(row["mail"] or 0, row["st"] or "", row["ga"]))
            case "b" | "n":  # busy: another transaction holds the row; not committed: the connection broke before it
                asyncio.get_running_loop().call_later(_BUSY_PAUSE_S, self._again, waiting)
            case _:
                self._meter.fenced.value += 1
                waiting.future.set_exception(Fenced())

    def _again(self, waiting: _Waiting) -> None:
        self._queue.append(waiting)
        self._wake.set()

    async def _halve(self, batch: list[_Waiting], error: Exception) -> None:
        if len(batch) == 1:
            self._meter.refused.value += 1
            log.error("the database refuses a commit", extra={"run": str(batch[0].item.run)}, exc_info=error)
            if not batch[0].future.done():
                batch[0].future.set_exception(StorageRefused(type(error).__name__))
            return
        middle = len(batch) // 2
        await self._settle(batch[:middle])
        await self._settle(batch[middle:])

    async def _execute(self, batch: Sequence[_Waiting]) -> dict[UUID, asyncpg.Record]:
        """One transaction; after a broken one, what became of it."""
        broken = False
        pause = 0.05
        while True:
            try:
                with translated():
                    return await self._send(await self._connect(), batch, broken=broken)
            except Unavailable as error:
                log.warning("commit of %d items interrupted: %r", len(batch), error.__cause__)
                broken = True
                for waiting in batch:
                    waiting.in_doubt = True
                self._drop()
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)

    async def _send(
        self, connection: asyncpg.Connection, batch: Sequence[_Waiting], *, broken: bool
    ) -> dict[UUID, asyncpg.Record]:
        if broken:
            return await self._committed(connection, batch)
        now_s = time.monotonic()
        items = [
            waiting.item if now_s - waiting.since_s < _LONG_S else delayed(waiting.item, now_s - waiting.since_s)
            for waiting in batch
        ]
        by_itself = alone(self._owner, items[0]) if len(items) == 1 else None
        if by_itself is not None:
            name, values = by_itself
            row = await connection.fetchrow(queries("pipeline")[name], *values)
            if row is not None:
                return {row["run"]: row}
        statement, arguments = prepared(self._owner, items, now_s=time.monotonic())
        rows = await connection.fetch(statement, *arguments)
        results = {row["run"]: row for row in rows}
        # The server may have gone on with an interrupted statement, and committed it after it was looked up.
        late = [each for each in batch if each.in_doubt and _result(results.get(each.item.run)) in "fg"]
        return results | (await self._committed(connection, late) if late else {})

    async def _committed(self, connection: asyncpg.Connection, batch: Sequence[_Waiting]) -> dict[UUID, asyncpg.Record]:
        fences = _fences([waiting.item for waiting in batch])
        rows = await connection.fetch(queries("pipeline")["committed"], self._owner, *fences)
        return {row["run"]: row for row in rows}

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None or self._connection.is_closed():
            connection = await connect(self._dsn, "runr-executor-pipeline", _SETTINGS)
            try:
                identity = await server_identity(connection)
                if self._identity not in (None, identity):
                    raise ServerChanged
            except BaseException:
                connection.terminate()
                raise
            self._identity = identity
            self._connection = connection
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


def _result(row: asyncpg.Record | None) -> str:
    """d done, b busy, n not committed, f fenced, g gone."""
    return "g" if row is None else str(row["result"])


def _fences(items: Sequence[CommitItem]) -> tuple[list[UUID], list[int], list[int], list[int]]:
    return (
        [item.run for item in items],
        [item.tenant for item in items],
        [item.epoch for item in items],
        [item.rev for item in items],
    )
