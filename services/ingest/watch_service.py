"""WatchRun over gRPC: a run's changes as they come, at the pace of who reads them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

from runr.workflows.v1 import run_service_pb2

from services.core.domain.errors import RateLimited, Unavailable
from services.core.domain.run_change import Cursor, RunChange
from services.core.domain.run_record import AttemptRecord, Place, RunRecord, StepRecord
from services.core.rpc import convert_run
from services.core.runtime.clock import Clock
from services.core.store.run_changes import RunChangeReader
from services.ingest.run_changes import RunChanges

STREAMS_PER_TOKEN = 100
"""Streams that one token may have open at one process."""

_STREAMS = 2_000
# Then the caller comes again, and its token is judged anew.
_LIFE_S = 600.0
# A step that sends events has its output a moment after the commit that it is in: one more look after every change.
_SETTLED_S = 2.0


class WatchService:
    """The part of RunService that follows runs.

    One page of changes is in memory for each stream: who reads slowly gets fewer and bigger ones. Of all streams of a
    process one reads the database at a time, so that other reads have the other connections.
    """

    def __init__(self, reader: RunChangeReader, changes: RunChanges, clock: Clock) -> None:
        self._reader = reader
        self._changes = changes
        self._clock = clock
        self._turn = asyncio.Semaphore(1)
        self._open: Counter[str] = Counter()

    async def watch(
        self, tenant: int, token: str, run: UUID, asked: Cursor | None
    ) -> AsyncGenerator[run_service_pb2.WatchRunResponse, None]:
        """WatchRun. `token` is whose streams are counted. Raises NotFound, RateLimited, Unavailable."""
        if self._changes.closed:
            raise Unavailable("this server ends: ask another one")
        with self._seat(token):
            until = self._clock.monotonic() + _LIFE_S
            told = _Told()
            cursor = asked
            while True:
                first = page = await self._since(tenant, run, cursor, None)
                if first.mark is None and asked is not None and asked.ended and not first.whole:
                    return
                while page.next is not None:
                    yield _message(page, told.news(page), run=first.run)
                    page = await self._since(tenant, run, cursor, page.next)
                steps, failed = told.news(page), told.failed(first.run)
                is_news = told.is_other(first.run) or bool(steps or failed) or first.whole
                if is_news:
                    yield _message(page, steps, run=first.run, failed=failed, cursor=first.cursor)
                cursor = first.cursor
                left_s = until - self._clock.monotonic()
                if first.mark is None or self._changes.closed or left_s <= 0:
                    return
                await self._changes.wait(run, first.mark, min(left_s, _SETTLED_S) if is_news else left_s)

    async def _since(self, tenant: int, run: UUID, cursor: Cursor | None, after: Place | None) -> RunChange:
        await self._turn.acquire()
        began_s = self._clock.monotonic()
        try:
            return await self._reader.since(tenant, run, cursor, after=after)
        finally:
            # Half of the time nobody looks: who follows runs of thousands of steps must not keep the database busy.
            asyncio.get_running_loop().call_later(self._clock.monotonic() - began_s, self._turn.release)

    @contextmanager
    def _seat(self, token: str) -> Iterator[None]:
        if self._open[token] >= STREAMS_PER_TOKEN:
            raise RateLimited(f"this token has {STREAMS_PER_TOKEN} streams open already: close one of them")
        if self._open.total() >= _STREAMS:
            raise Unavailable("too many streams are open here; try again")
        self._open[token] += 1
        try:
            yield
        finally:
            self._open[token] -= 1
            if not self._open[token]:
                del self._open[token]


class _Told:
    """What a stream has told, so that it does not say the same again."""

    def __init__(self) -> None:
        self._run: RunRecord | None = None
        self._steps: dict[str, int] = {}
        self._failed: set[AttemptRecord] = set()

    def failed(self, run: RunRecord) -> tuple[AttemptRecord, ...]:
        """The failed attempts of the function that are not as they were told; they count as told then."""
        news = tuple(attempt for attempt in run.attempts if attempt not in self._failed)
        self._failed = set(run.attempts)
        return news

    def is_other(self, run: RunRecord) -> bool:
        """Whether the run is other than what was told last; it counts as told then."""
        bare = replace(run, event=None, output=None, attempts=())
        before, self._run = self._run, bare
        return before != bare

    def news(self, page: RunChange) -> list[StepRecord]:
        """The steps of a page that are not as they were told last; they count as told then."""
        news = []
        for step in page.steps:
            state = hash(step)
            if page.whole or self._steps.get(step.id) != state:
                news.append(step)
                self._steps[step.id] = state
        return news


def _message(
    page: RunChange,
    steps: Sequence[StepRecord],
    *,
    run: RunRecord,
    failed: tuple[AttemptRecord, ...] = (),
    cursor: Cursor | None = None,
) -> run_service_pb2.WatchRunResponse:
    """One answer. `failed`: attempts of the function that are new. Without a cursor more belongs to it."""
    ended = cursor is not None and cursor.ended
    shown = run if ended else replace(run, event=None, output=None, attempts=failed)
    return run_service_pb2.WatchRunResponse(
        run=convert_run.run(shown),
        steps=[convert_run.step(step) for step in steps],
        cursor="" if cursor is None else cursor.text,
        whole=page.whole,
        ended=ended,
    )
