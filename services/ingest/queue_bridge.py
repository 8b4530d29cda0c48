"""The queue bridge to JetStream: a consumer for every project whose queue stream is there (engine section 3).

Which projects these are is in the database: it is looked at when definitions change, and every few seconds. Every
replica of ingest consumes all of them; the consumers in JetStream are shared, so each message reaches one replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict

from services.core.bus.queue_stream import QueueStream
from services.core.bus.session import FAULTS
from services.core.domain.errors import Unavailable
from services.core.domain.queue_message import nats_stream
from services.core.runtime.clock import Clock
from services.core.runtime.lifecycle import Component
from services.core.store.queues import QueueProject, existing_projects, queue_projects, tenant_versions
from services.ingest.queue_consumer import ConsumerParts, QueueConsumer

log = logging.getLogger(__name__)

_LOOK_S = 5.0
_PAUSE_S = 0.1
# By then every replica has seen that a project is gone: none makes its consumer again.
_FORGET_S = 60.0


class QueueBridge(Component):
    """Keeps one consumer running for each project with a JetStream queue stream."""

    name = "queue-bridge"

    def __init__(
        self,
        parts: ConsumerParts,
        clock: Clock,
        *,
        ack_wait_s: float,
        look_s: float = _LOOK_S,
        forget_s: float = _FORGET_S,
    ) -> None:
        """`ack_wait_s`: after this time without a word a message is delivered to another replica."""
        self._parts = parts
        self._clock = clock
        self._ack_wait_s = ack_wait_s
        self._look_s = look_s
        self._forget_s = forget_s
        self._known: dict[int, tuple[int, list[QueueProject]]] = {}
        self._running: dict[QueueProject, tuple[QueueConsumer, asyncio.Task[None]]] = {}
        self._left: dict[QueueProject, float] = {}
        self._wake = asyncio.Event()
        self._closing = False

    def state(self) -> str:
        """How many streams are consumed, for readiness."""
        states = [consumer.state for consumer, _ in self._running.values()]
        away = sum(state != "consuming" for state in states)
        return f"{len(states)} streams" + (f", {away} of them not consumed" if away else "")

    async def start(self) -> None:
        """See `Component.start`."""
        await self._parts.bus.on_defs(self._changed)

    async def run(self) -> None:
        """Look, and have consumers for what is there, until cancelled."""
        try:
            while True:
                if not self._closing:
                    await self._look_and_follow()
                await self._until_next_look()
        finally:
            tasks = [task for _, task in self._running.values()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def drain(self) -> None:
        """Every consumer takes no more and finishes what it has."""
        self._closing = True
        self._wake.set()
        await asyncio.gather(*(consumer.close() for consumer, _ in self._running.values()))

    async def _look_and_follow(self) -> None:
        try:
            wanted = await self._look()
        except Unavailable:
            return  # consumers wait for the database by themselves
        for project in [each for each in self._running if each not in wanted]:
            await self._leave(project)
        for project in wanted:
            self._left.pop(project, None)
            if not self._closing and project not in self._running:
                self._follow(project)
        await self._forget_the_gone()

    async def _look(self) -> list[QueueProject]:
        """The projects to consume for. Only tenants whose definitions have changed are read."""
        async with self._parts.database.connection() as connection:
            tenants = await tenant_versions(connection)
            known = {tenant.id: self._known[tenant.id] for tenant in tenants if tenant.id in self._known}
            for tenant in tenants:
                if tenant.id not in known or known[tenant.id][0] != tenant.version:
                    known[tenant.id] = tenant.version, await queue_projects(connection, tenant)
        self._known = known
        found = [project for _, projects in known.values() for project in projects]
        return [project for project in found if nats_stream(project.queue_stream) is not None]

    def _follow(self, project: QueueProject) -> None:
        consumer = QueueConsumer(project, self._stream(project), self._parts)
        task = asyncio.create_task(_keep(consumer), name=f"queue-{project.id}")
        self._running[project] = consumer, task

    async def _leave(self, project: QueueProject) -> None:
        consumer, task = self._running.pop(project)
        await consumer.close()
        task.cancel()
        await asyncio.wait({task})
        self._left[project] = self._clock.monotonic() + self._forget_s

    async def _forget_the_gone(self) -> None:
        """Delete the consumers of deleted projects. Others stay: a project that comes back goes on where it was."""
        due: dict[int, list[QueueProject]] = defaultdict(list)
        for project, at in self._left.items():
            if at <= self._clock.monotonic():
                due[project.tenant].append(project)
        for tenant, projects in due.items():
            with contextlib.suppress(Unavailable):
                async with self._parts.database.connection() as connection:
                    there = await existing_projects(connection, tenant, {project.id for project in projects})
                for project in projects:
                    if project.id in there or await self._forgot(project):
                        del self._left[project]

    async def _forgot(self, project: QueueProject) -> bool:
        if not self._parts.bus.connected:
            return False
        try:
            await self._stream(project).forget(await self._parts.bus.session())
        except FAULTS as error:
            log.debug("a consumer could not be deleted", extra={"fault": type(error).__name__})
            return False
        return True

    def _stream(self, project: QueueProject) -> QueueStream:
        subjects = self._parts.bus.subjects
        return QueueStream(
            subjects=subjects,
            stream=nats_stream(project.queue_stream) or "",
            consumer=subjects.queue_consumer(project.id),
            description=f"RunR: project {project.slug} of tenant {project.tenant_slug}",
            ack_wait_s=self._ack_wait_s,
        )

    async def _changed(self, _tenant: int) -> None:
        self._wake.set()

    async def _until_next_look(self) -> None:
        await asyncio.sleep(_PAUSE_S)  # many changes at once are one look
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await self._wake.wait()
        self._wake.clear()


async def _keep(consumer: QueueConsumer) -> None:
    """Run a consumer. A fault of its own is no other project's: it begins anew."""
    while True:
        try:
            return await consumer.run()
        except Exception:
            log.exception("a queue consumer failed", extra={"project": consumer.project.slug})
            await asyncio.sleep(_LOOK_S)
