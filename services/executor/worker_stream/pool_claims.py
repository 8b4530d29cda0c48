"""Which runs that only workers serve are claimed: the oldest of the workflows for which a connected worker has room.

A hint at such a run says which workflow to look at. What this process has no room for is passed on to all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import asyncpg

from services.core.engine.hints import Hints
from services.core.store.queries import queries
from services.executor.worker_stream.sessions import WorkerSessions


class PoolClaims:
    """What one owner knows of such runs. Nothing is claimed here without a worker's credit."""

    def __init__(self, sessions: WorkerSessions, hints: Hints) -> None:
        self._sessions = sessions
        self._hints = hints
        self._ready: set[int] = set()
        """Workflows that are served here and probably have runs in the queue."""
        self._wake: Callable[[], None] = lambda: None

    def tell(self, wake: Callable[[], None]) -> None:
        """Call `wake` when `wanted` may have become true."""
        self._wake = wake
        self._sessions.listen(self.came)

    @property
    def wanted(self) -> bool:
        """Whether there is probably something to claim."""
        return bool(self._ready) and self._sessions.has_room(self._ready)

    @property
    def waiting(self) -> set[int]:
        """Tenants for whose workers there is probably something to claim."""
        return self._sessions.tenants_with_room(self._ready)

    def came(self, workflows: Iterable[int]) -> None:
        """These workflows have runs, or may have some; or just: there is more room."""
        self._ready.update(self._sessions.served(workflows))
        if self.wanted:
            self._wake()

    def given_back(self, workflow: int) -> None:
        """A run of it was held here and is in the queue again."""
        self._hints.pooled([workflow])
        self.came([workflow])

    def seen(self, rows: Sequence[asyncpg.Record]) -> None:
        """Runs that a hint named and that nobody holds."""
        counts = Counter(row["wf"] for row in rows)
        self._hints.pooled([wf for wf, count in counts.items() if self._sessions.room_for(wf) < count])
        self.came(counts)

    def place(self, workflow: int, meant: Counter[str]) -> str | None:
        """The session for a run of this workflow that is claimed by its id, beside those that are `meant` for sessions
        already. None: none has room, or others may have been in the queue for longer.
        """
        return None if workflow in self._ready else self._sessions.place(workflow, meant)

    async def claim(
        self,
        connection: asyncpg.Connection,
        owner: int,
        room: int,
        *,
        most: Callable[[int], int] | None = None,
        everywhere: bool = False,
    ) -> list[asyncpg.Record]:
        """Rows of `rt.live` that are this owner's now, at most `room`, each meant for the session in `affinity`.

        Of the workflows that are known to have some; `everywhere`: of all that are served here. `most` tells how many
        of a tenant.
        """
        offers = self._sessions.offers(None if everywhere else self._ready, room, most)
        if not offers.slot_sessions:
            return []
        rows = await connection.fetch(
            queries("executor")["claim_pooled"],
            owner,
            offers.workflows,
            offers.groups,
            offers.slot_groups,
            offers.slot_sessions,
        )
        if len(rows) < len(offers.slot_sessions):
            self._ready.difference_update(offers.workflows)
        else:
            self._ready.update(row["wf"] for row in rows)
        return list(rows)
