"""The workers that are connected to this executor, and which of them is given a run."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from uuid import UUID

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.errors import Unavailable
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.executor.worker_stream.session import WorkerSession

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_MAX_BRINGS = 64
MAX_SESSIONS = 1_000
"""Of one project at one executor."""
_MAX_WORKFLOWS = 2_000
"""Workflows that one claim looks at; with more, they take turns."""

_Project = tuple[int, int]

Adopt = Callable[[WorkerSession, Sequence[pb.Resume.Item]], Awaitable[None]]
"""Takes over what a worker brings along from another executor, and answers it about that. What is not answered then is
over. Raises Unavailable where that cannot be known now.
"""


class TooManyWorkers(Exception):
    """A project has as many sessions here as one may have."""


@dataclass(slots=True)
class Offers:
    """Room for runs, as `rt.claim_pooled_v1` takes it: workflows in groups, and a slot for each run of a group."""

    workflows: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    slot_groups: list[int] = field(default_factory=list)
    slot_sessions: list[UUID] = field(default_factory=list)


class WorkerSessions(Component):
    """All sessions of this process. They outlive the lives of its owner: a worker does not care who holds a run."""

    name = "worker-sessions"

    def __init__(self, clock: Clock, *, request_timeout_s: float, resume_grace_s: float) -> None:
        self._clock = clock
        self._request_timeout_s = request_timeout_s
        self._resume_grace_s = resume_grace_s
        self._by_project: dict[_Project, dict[str, WorkerSession]] = {}
        self._met = asyncio.Event()
        self._serving: dict[int, int] = {}
        """How many sessions serve a workflow, by its id."""
        self._open: dict[WorkerSession, None] = {}
        """Sessions that have credits."""
        self._listener: Callable[[Iterable[int]], None] = lambda _: None
        self._turn = 0
        self._adopt: Adopt | None = None
        self._adopting: dict[asyncio.Task[None], WorkerSession] = {}
        self.draining = False
        """Whether this executor is being stopped: it takes no more streams."""

    def __iter__(self) -> Iterator[WorkerSession]:
        for sessions in list(self._by_project.values()):
            yield from list(sessions.values())

    async def until_any(self) -> None:
        """Return when there is a session."""
        while not self._by_project:
            self._met.clear()
            await self._met.wait()

    def listen(self, listener: Callable[[Iterable[int]], None]) -> None:
        """Tell `listener`, and nobody else any more, of workflows that are served from now on, and of room (none)."""
        self._listener = listener

    def adopt_with(self, adopt: Adopt) -> None:
        """How to take over what a worker brings along."""
        self._adopt = adopt

    def bring(self, session: WorkerSession, items: Sequence[pb.Resume.Item]) -> None:
        """The worker brings these along, which do not run here. Goes on when its stream breaks: they are taken over."""
        if items:
            task = asyncio.create_task(self._take_over(session, items), name="worker-adoption")
            self._adopting[task] = session
            task.add_done_callback(self._adopting.pop)

    def is_bringing_too_much(self, session: WorkerSession) -> bool:
        """Whether it brings things along again and again while it was not answered."""
        return sum(each is session for each in self._adopting.values()) >= _MAX_BRINGS

    async def _take_over(self, session: WorkerSession, items: Sequence[pb.Resume.Item]) -> None:
        try:
            if self._adopt is not None:
                await self._adopt(session, items)
        except Unavailable as reason:
            log.warning("runs of a worker's session are not taken over now: %s", reason)
            session.postpone(item.key for item in items)
            return
        except Exception:
            log.exception("runs of a worker's session cannot be taken over")
        session.decline(item.key for item in items)

    def find(self, tenant: int, project: int, session: str | None) -> WorkerSession | None:
        """The session of this id, if it is here."""
        return None if session is None else self._by_project.get((tenant, project), {}).get(session)

    def connected(self, tenant: int, project: int) -> int:
        """How many sessions of the project have a stream to this executor."""
        return sum(session.is_connected for session in self._by_project.get((tenant, project), {}).values())

    def part(self) -> None:
        """The owner of this process is dead or leaves: workers bring along what they execute, here or elsewhere."""
        goodbye = pb.Goodbye(reason="UNAVAILABLE", message="this executor holds no runs any more: connect again")
        for session in self:
            session.part(pb.EngineMessage(goodbye=goodbye))

    def meet(self, session: str, *, tenant: int, project: int, node: str) -> WorkerSession:
        """The session of this id, new or known. Raises TooManyWorkers."""
        sessions = self._by_project.setdefault((tenant, project), {})
        if session not in sessions:
            if len(sessions) >= MAX_SESSIONS:
                raise TooManyWorkers
            self._met.set()
            sessions[session] = WorkerSession(
                session,
                tenant=tenant,
                project=project,
                node=node,
                clock=self._clock,
                credits_changed=self._credits_changed,
            )
        return sessions[session]

    def serve(self, session: WorkerSession, workflows: frozenset[str], ids: frozenset[int]) -> None:
        """It executes these workflows from now on, and has a stream."""
        self._serve_nothing(session)
        session.workflows, session.workflow_ids = workflows, ids
        for wf in ids:
            self._serving[wf] = self._serving.get(wf, 0) + 1
        self._listener(ids)

    def pick(self, tenant: int, project: int, workflow: str, *, preferred: str | None) -> WorkerSession | None:
        """A session that serves the workflow and has a credit: the preferred one, else the one with the most.

        The credit is spent by `WorkerSession.execute`, which must follow without waiting for anything.
        """
        sessions = self._by_project.get((tenant, project), {})
        meant = self.find(tenant, project, preferred)
        if meant is not None and meant.credits > 0 and workflow in meant.workflows:
            return meant
        serving = [each for each in sessions.values() if workflow in each.workflows]
        best = max(serving, key=lambda each: each.credits, default=None)
        return best if best is not None and best.credits > 0 else None

    def served(self, workflows: Iterable[int]) -> list[int]:
        """Those of the workflows that are served here."""
        return [wf for wf in workflows if wf in self._serving]

    def room_for(self, workflow: int) -> int:
        """Invocations of the workflow that could begin now."""
        return sum(session.credits for session in self._open if workflow in session.workflow_ids)

    def place(self, workflow: int, meant: Counter[str]) -> str | None:
        """The session with the most room for a run of the workflow, when those that are `meant` for each have begun."""
        serving = [session for session in self._open if workflow in session.workflow_ids]
        best = max(serving, key=lambda each: each.credits - meant[each.session], default=None)
        return best.session if best is not None and best.credits > meant[best.session] else None

    def has_room(self, workflows: set[int]) -> bool:
        """Whether an invocation of any of these workflows could begin now."""
        return any(not workflows.isdisjoint(session.workflow_ids) for session in self._open)

    def tenants_with_room(self, workflows: set[int]) -> set[int]:
        """Whose invocations of any of these workflows could begin now."""
        return {session.tenant for session in self._open if not workflows.isdisjoint(session.workflow_ids)}

    def offers(self, only: Container[int] | None, room: int, most: Callable[[int], int] | None = None) -> Offers:
        """Room for at most so many runs, of these workflows only (None: of all). Projects take turns being first.

        `most` tells how many of a tenant.
        """
        found = Offers()
        taken: Counter[int] = Counter()
        offering: dict[tuple[int, frozenset[int]], list[WorkerSession]] = {}
        for session in self._open:
            offering.setdefault((session.project, session.workflow_ids), []).append(session)
        if not offering:
            return found
        self._turn = (self._turn + 1) % len(offering)
        turns = [*islice(offering.items(), self._turn, None), *islice(offering.items(), self._turn)]
        share = max(1, room // len(turns))
        for group, ((_, ids), sessions) in enumerate(turns):
            workflows = [wf for wf in ids if only is None or wf in only]
            if not workflows or len(found.slot_sessions) >= room:
                continue
            if len(found.workflows) + len(workflows) > _MAX_WORKFLOWS and found.workflows:
                break
            found.workflows += workflows
            found.groups += [group] * len(workflows)
            left, tenant = room - len(found.slot_sessions), sessions[0].tenant
            if most is not None:
                left = min(left, most(tenant) - taken[tenant])
            slots = _slots(sessions, min(left, share if only is None else left))
            taken[tenant] += len(slots)
            found.slot_sessions += slots
            found.slot_groups += [group] * len(slots)
        return found

    def announce_drain(self) -> None:
        """Tell every worker that this executor stops: it opens a stream elsewhere, and ends what runs (S7)."""
        self.draining = True
        message = pb.Drain(reason="the executor is being stopped")
        for session in self:
            session.drain()
            session.send(pb.EngineMessage(drain=message))

    async def drain(self) -> None:
        """Say goodbye: by now no run is held any more."""
        goodbye = pb.EngineMessage(goodbye=pb.Goodbye(reason="SHUTDOWN", message="the executor is being stopped"))
        for session in self:
            session.leave(goodbye)

    async def run(self) -> None:
        """Give up workers that do not come back, and steps that take too long, until cancelled."""
        while True:
            await self.until_any()
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
        self._serve_nothing(session)
        session.lost()

    def _serve_nothing(self, session: WorkerSession) -> None:
        for wf in session.workflow_ids:
            self._serving[wf] -= 1
            if not self._serving[wf]:
                del self._serving[wf]
        session.workflows, session.workflow_ids = frozenset(), frozenset()

    def _credits_changed(self, session: WorkerSession) -> None:
        if session.credits > 0:
            self._open[session] = None
            self._listener(())
        else:
            self._open.pop(session, None)


def _slots(sessions: Iterable[WorkerSession], most: int) -> list[UUID]:
    """A slot for each run that these sessions take, at most so many; the one with the most credits left comes first."""
    left = [(-each.credits, place, UUID(each.session)) for place, each in enumerate(sessions)]
    heapq.heapify(left)
    slots: list[UUID] = []
    while left and len(slots) < most:
        credits, place, session = left[0]
        slots.append(session)
        if credits == -1:
            heapq.heappop(left)
        else:
            heapq.heapreplace(left, (credits + 1, place, session))
    return slots
