"""The workers that are connected to this executor, and which of them is given a run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.executor.worker_stream.session import WorkerSession

_LOOK_S = 0.5

_Project = tuple[int, int]


class WorkerSessions(Component):
    """All sessions of this process. They outlive the lives of its owner: a worker does not care who holds a run."""

    name = "worker-sessions"

    def __init__(self, clock: Clock, *, request_timeout_s: float, resume_grace_s: float) -> None:
        self._clock = clock
        self._request_timeout_s = request_timeout_s
        self._resume_grace_s = resume_grace_s
        self._by_project: dict[_Project, dict[str, WorkerSession]] = {}
        self._waiting: dict[_Project, deque[asyncio.Future[None]]] = {}
        self.draining = False
        """Whether this executor is being stopped: it takes no more streams."""

    def __iter__(self) -> Iterator[WorkerSession]:
        for sessions in list(self._by_project.values()):
            yield from list(sessions.values())

    def meet(self, session: str, *, tenant: int, project: int, node: str) -> WorkerSession:
        """The session of this id, new or known."""
        sessions = self._by_project.setdefault((tenant, project), {})
        if session not in sessions:
            sessions[session] = WorkerSession(
                session,
                tenant=tenant,
                project=project,
                node=node,
                clock=self._clock,
                has_room=lambda: self._has_room((tenant, project)),
            )
        return sessions[session]

    def serves(self, tenant: int, project: int, workflow: str) -> bool:
        """Whether a worker that is connected, or was a moment ago, executes this workflow."""
        return bool(self._serving((tenant, project), workflow))

    async def acquire(self, tenant: int, project: int, workflow: str) -> WorkerSession | None:
        """A session with a credit for an invocation, the one with the most; waits for one. None: no worker serves it.

        The credit is spent by `WorkerSession.execute`, which must follow without waiting for anything.
        """
        key = (tenant, project)
        while True:
            serving = self._serving(key, workflow)
            if not serving:
                return None
            best = max(serving, key=lambda each: each.credits)
            if best.credits > 0:
                return best
            freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(key, deque()).append(freed)
            await freed

    def announce_drain(self) -> None:
        """Tell every worker that this executor stops: it opens a stream elsewhere, and ends what runs (S7)."""
        self.draining = True
        message = pb.Drain(reason="the executor is being stopped")
        for session in self:
            session.draining = True
            session.send(pb.EngineMessage(drain=message))

    async def drain(self) -> None:
        """Say goodbye: by now no run is held any more."""
        goodbye = pb.EngineMessage(goodbye=pb.Goodbye(reason="SHUTDOWN", message="the executor is being stopped"))
        for session in self:
            session.leave(goodbye)

    def changed(self, session: WorkerSession) -> None:
        """It has come, gone, or serves something else: whoever waits for a worker looks again."""
        for freed in self._waiting.pop((session.tenant, session.project), ()):
            if not freed.done():
                freed.set_result(None)

    async def run(self) -> None:
        """Give up workers that do not come back, and steps that take too long, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for session in self:
                if session.detached_at is None:
                    session.expire(self._request_timeout_s)
                elif self._clock.monotonic() - session.detached_at > self._resume_grace_s:
                    self._drop(session)

    def _drop(self, session: WorkerSession) -> None:
        sessions = self._by_project[(session.tenant, session.project)]
        del sessions[session.session]
        if not sessions:
            del self._by_project[(session.tenant, session.project)]
        session.lost()
        self.changed(session)

    def _serving(self, key: _Project, workflow: str) -> list[WorkerSession]:
        sessions = self._by_project.get(key)
        return [each for each in sessions.values() if workflow in each.workflows] if sessions else []

    def _has_room(self, key: _Project) -> None:
        waiting = self._waiting.get(key)
        while waiting:
            freed = waiting.popleft()
            if not freed.done():
                freed.set_result(None)
                return
