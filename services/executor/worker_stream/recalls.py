"""Asks workers for runs that are kept for them (rulings S2): the executor that was to execute such a run has died or
stopped, and may not have sent it, or its stream may be another one than that on which the worker has come.

What the worker has it brings along; what has never begun is in the queue again at once, without an attempt. About
what it had and has dropped it is silent: that is lost when its time is over.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.errors import Unavailable
from services.core.engine.hints import Hints
from services.core.runtime.ids import ulid_text, ulid_uuid
from services.core.runtime.lifecycle import Component
from services.core.store.database import Database
from services.core.store.queries import queries
from services.executor.worker_stream.session import WorkerSession
from services.executor.worker_stream.sessions import WorkerSessions

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_LIMIT = 5_000


class Recalls(Component):
    """Asks the workers of one process, for as long as it takes new streams."""

    name = "worker-recalls"

    def __init__(self, database: Database, sessions: WorkerSessions, hints: Hints) -> None:
        self._database = database
        self._sessions = sessions
        self._hints = hints
        self._returning: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Look and ask, until cancelled."""
        try:
            while True:
                await self._sessions.until_any()
                await asyncio.sleep(_LOOK_S)
                await self._look_if_there()
        finally:
            for task in self._returning:
                task.cancel()

    async def _look_if_there(self) -> None:
        try:
            await self.look()
        except Unavailable:
            log.debug("cannot look for what is kept for workers: the database is away")

    async def look(self) -> None:
        """Ask each worker for what is kept for it. Raises Unavailable."""
        sessions = {each.session: each for each in self._sessions if each.is_connected}
        if self._sessions.draining or not sessions:
            return  # a worker here has, or will have, a newer stream to another executor
        workflows = set[int]().union(*(each.workflow_ids for each in sessions.values()))
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                queries("executor")["parked"], [UUID(each) for each in sessions], list(workflows), _LIMIT
            )
        kept: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for row in rows:
            kept[str(row["session"])].append((ulid_text(row["run"]), row["epoch"]))
        for session, runs in kept.items():
            sessions[session].recall(runs)

    def never_begun(self, session: WorkerSession, keys: Sequence[pb.InvocationKey]) -> None:
        """The worker answers that nothing of these has begun, and nothing will."""
        if asked := session.asked_for(keys):
            task = asyncio.create_task(self._return(session, asked), name="worker-returns")
            self._returning.add(task)
            task.add_done_callback(self._returning.discard)

    async def _return(self, session: WorkerSession, keys: Sequence[pb.InvocationKey]) -> None:
        named = {run: key.epoch for key in keys if (run := _run(key)) is not None}
        try:
            async with self._database.connection() as connection:
                rows = await connection.fetch(
                    queries("executor")["never_begun"],
                    UUID(session.session),
                    session.tenant,
                    list(named),
                    list(named.values()),
                )
        except Unavailable:
            return  # it is asked again
        self._hints.pooled(sorted({row["wf"] for row in rows if row["pooled"]}))
        self._hints.ready([row["run"] for row in rows if not row["pooled"]])
        if rows:
            log.info("runs had never reached their worker", extra={"node": session.node, "runs": len(rows)})


def _run(key: pb.InvocationKey) -> UUID | None:
    try:
        return ulid_uuid(key.run_id) if key.epoch >= 0 else None
    except ValueError:
        return None
