"""How a held run is driven: over the stream of a worker that serves it and has room, else over HTTP."""

from __future__ import annotations

from collections.abc import Callable

from services.executor.drive import Driver
from services.executor.lease import Lease
from services.executor.worker_stream.affinities import Affinities
from services.executor.worker_stream.drive import StreamDriver
from services.executor.worker_stream.invocation import LiveInvocation
from services.executor.worker_stream.sessions import WorkerSessions


class Dispatcher:
    """Drives runs. One instance serves all leases of an owner."""

    def __init__(
        self,
        *,
        http: Driver,
        stream: StreamDriver,
        sessions: WorkerSessions,
        affinities: Affinities,
        may_go_on: Callable[[], bool],
    ) -> None:
        self._http = http
        self._stream = stream
        self._sessions = sessions
        self._affinities = affinities
        self._may_go_on = may_go_on

    async def drive(self, lease: Lease) -> bool:
        """Drive the run until it rests or ends (True), or may not go on here and is still held (False)."""
        if lease.under_way is not None and await self._go_on(lease, lease.under_way):
            return True
        while self._may_go_on():
            if not await self._stream.definitions.follow(lease) or lease.gives_way:
                return False
            session = self._sessions.pick(lease.tenant, lease.project.id, lease.entry.name, preferred=lease.affinity)
            if session is None and lease.project.by_workers:
                return False  # whoever has a worker with room takes it
            if session is None:
                if not await self._affinities.assign(lease, None):
                    return True  # it has ended, or is held by another
                if "b" in lease.open_steps.values():
                    # A step waits for its next attempt. A request over HTTP cannot say so: it would be one.
                    return await self._stream.rest(lease)
                return await self._http.drive(lease)
            if session.session != lease.affinity:
                if not await self._affinities.assign(lease, session.session):
                    return True
                continue  # meanwhile it may have no credit left
            if await self._stream.drive(lease, session):
                return True
        return False

    async def _go_on(self, lease: Lease, brought: LiveInvocation) -> bool:
        """With what a worker has brought along. False: the run may be invoked again."""
        session = self._sessions.find(lease.tenant, lease.project.id, lease.affinity)
        if session is None:
            return await self._stream.lost(lease)
        is_over = await self._stream.go_on(lease, session, brought)
        lease.under_way = None
        return bool(is_over)
