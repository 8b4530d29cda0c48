"""Start runs over the API (engine section 3, `POST …/runs`): those that are asked for at the same time, for whichever
tenants, are one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from services.core.engine.definitions import DefinitionsCache
from services.core.engine.group_commit import Bounds, GroupCommit
from services.core.engine.hints import Hints
from services.core.engine.isolate import Isolating
from services.core.engine.run_traces import RunTraces
from services.core.engine.start_batch import Start, StartBatches
from services.core.engine.start_request import Started, StartRequest
from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.store.database import Database

_BIG_BYTES = 256 * 1024

_SMALL = Bounds(lanes=2)
_BIG = Bounds(items=16, lanes=1, waiting_size=128 * 1024 * 1024)
_ASIDE = Bounds(items=1, lanes=2)

LANES = _SMALL.lanes + _BIG.lanes + _ASIDE.lanes
"""So many connections at most are used at a time."""


class RunStarter:
    """Starts runs: a transaction, then a hint."""

    def __init__(
        self,
        database: Database,
        definitions: DefinitionsCache,
        hints: Hints,
        ids: UlidFactory,
        traces: RunTraces | None = None,
        clock: Clock | None = None,
    ) -> None:
        traces = traces or RunTraces.off(database)
        self._spans = traces.spans
        self._ids = ids
        isolating = Isolating(StartBatches(database, definitions, hints, traces).once)
        clock = clock or SystemClock()
        # A start that has to wait for whoever holds its key does so where it holds up no others (rulings C11), and big
        # ones are apart from small ones (P4).
        aside = GroupCommit(isolating.commit, clock, _ASIDE)
        commit = partial(isolating.commit, aside=aside)
        self._small = GroupCommit(commit, clock, _SMALL)
        self._big = GroupCommit(commit, clock, _BIG)

    async def start(self, request: StartRequest) -> Started:
        """Start it. Raises NotFound, Conflict (paused or archived), Unavailable (nothing was started, or ask again)."""
        start = self._begun(request)
        return await self._line(request).commit(start, key=request.tenant, size=start.size)

    def submit(self, request: StartRequest, tell: Callable[[Started | Exception], None]) -> None:
        """Have it started and its end told, with the errors of `start`. Raises Unavailable where too much waits."""
        start = self._begun(request)
        self._line(request).submit(start, key=request.tenant, size=start.size, tell=tell)

    def _line(self, request: StartRequest) -> GroupCommit[Start, Started]:
        return self._big if len(request.data) > _BIG_BYTES else self._small

    def _begun(self, request: StartRequest) -> Start:
        return Start(
            request=request,
            run=request.id or self._ids.new(),
            event=self._ids.new(),
            trace=self._spans.place(request.trace),
            begun_ns=self._spans.now_ns(),
        )
