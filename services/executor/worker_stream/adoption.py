"""What a worker brings along from another executor: taken over with the lease, so that no step runs again (rulings S2).

The worker's session is on the run's row, and the epoch says that nobody else has touched the run since. Where that does
not hold any more, another process goes on with the run and the worker unwinds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

import asyncpg
from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.ids import ulid_uuid
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query
from services.executor.arriving import Arriving
from services.executor.lease import Lease
from services.executor.load import load_leases
from services.executor.worker_stream.invocation import key_of
from services.executor.worker_stream.session import WorkerSession

log = logging.getLogger(__name__)

_BATCH = 256
_PAUSES_S = (0.0, 0.1, 0.4, 1.0, 2.0, 3.0)
"""Between looks at what runs have sent, which others accept; they are not waited for longer."""


class Adoption:
    """Takes runs over for one owner."""

    def __init__(
        self, database: Database, definitions: DefinitionsCache, hints: Hints, arriving: Arriving, *, owner: int
    ) -> None:
        self._database = database
        self._definitions = definitions
        self._hints = hints
        self._arriving = arriving
        self._owner = owner

    async def take_over(
        self,
        session: WorkerSession,
        items: Sequence[pb.Resume.Item],
        held: Collection[UUID],
        accept: Callable[[Lease], bool],
    ) -> None:
        """Take over those of these invocations that can be, answer the worker about them. The rest is over.

        `accept` answers False once the owner's life is over. Raises Unavailable: of what is not answered nothing is
        known then.
        """
        named = {run: item for item in items if (run := _run(item.key)) is not None and run not in held}
        runs = list(named)
        for start in range(0, len(runs), _BATCH):
            with self._arriving.asking():
                await self._take_over(session, {run: named[run] for run in runs[start : start + _BATCH]}, accept)

    async def _take_over(
        self, session: WorkerSession, named: dict[UUID, pb.Resume.Item], accept: Callable[[Lease], bool]
    ) -> None:
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                queries("executor")["take_over"],
                self._owner,
                UUID(session.session),
                session.tenant,
                list(session.workflow_ids),
                list(named),
                [item.key.epoch for item in named.values()],
            )
            if len(rows) < len(named) and not await connection.fetchval(queries("executor")["is_alive"], self._owner):
                raise Unavailable("this executor was declared dead")  # it takes nothing, whoever executes what
        for row in rows:
            self._hints.cancelled(row["was"], [row["run"]])
        waiting = [row["run"] for row in rows]
        with self._arriving.reading((UUID(int=row["run"].int), row["epoch"]) for row in rows):
            for pause in _PAUSES_S:
                await asyncio.sleep(pause)
                waiting = await self._hold(session, waiting, named, accept)
                if not waiting:
                    break
        if rows:
            log.info("a worker goes on here", extra={"node": session.node, "runs": len(rows) - len(waiting)})

    async def _hold(
        self,
        session: WorkerSession,
        runs: Sequence[UUID],
        named: Mapping[UUID, pb.Resume.Item],
        accept: Callable[[Lease], bool],
    ) -> list[UUID]:
        """Go on with these runs, which are ours now. Answers those of which is not known yet what they have sent."""
        if not runs:
            return []
        async with self._database.connection() as connection:
            rows = await connection.fetch(queries("executor")["taken_over"], self._owner, runs)
            leases = await load_leases(connection, self._definitions, rows)
            ready = [lease for lease in leases if not lease.unnamed]
            failed = await _failed_ops(connection, session.tenant, ready, named)
        for lease in ready:
            if not accept(lease):
                raise Unavailable("this executor holds nothing any more")
            key = (lease.run_text, lease.epoch, lease.count_invocation())
            lease.under_way = session.adopt(key, named[lease.run])
            lease.under_way.failed = failed.get(lease.run, frozenset())
        return [lease.run for lease in leases if lease.unnamed]


async def _failed_ops(
    connection: asyncpg.Connection, tenant: int, leases: Sequence[Lease], named: Mapping[UUID, pb.Resume.Item]
) -> dict[UUID, frozenset[int]]:
    """The ops of each run's invocation that are stored as failed attempts. They belong to its new key from now on."""
    runs = {lease.run: lease.epoch for lease in leases if lease.attempts}
    if not runs:
        return {}
    keys = [named[run].key for run in runs]
    rows = await connection.fetch(
        tenant_query("worker_stream", "failed_ops", tenant),
        list(runs),
        [key.epoch for key in keys],
        [key.invocation for key in keys],
        list(runs.values()),
    )
    found: dict[UUID, set[int]] = {}
    for row in rows:
        found.setdefault(row["run"], set()).add(row["op"])
    return {run: frozenset(numbers) for run, numbers in found.items()}


def _run(key: pb.InvocationKey) -> UUID | None:
    run_text, epoch, _ = key_of(key)
    try:
        return ulid_uuid(run_text) if epoch >= 0 else None
    except ValueError:
        return None
