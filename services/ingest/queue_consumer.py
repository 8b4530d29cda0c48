"""The messages of one project's JetStream stream: each accepted once, or buried with the reason.

A message is acknowledged after the commit of its acceptance; what dies in between comes again and is a duplicate. A
message that can never be an event is buried at once. One that fails is put back with a growing delay and buried after
`max_deliver` deliveries. While the database is away nothing counts and nothing is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from services.core.bus.jetstream import Bus
from services.core.bus.pull import Pull
from services.core.bus.queue_stream import (
    QueueMessage,
    QueueStream,
    StreamAway,
    acknowledge,
    bury,
    hold,
    put_back,
)
from services.core.bus.session import FAULTS, Session
from services.core.domain.errors import DomainError, InvalidInput, Unavailable
from services.core.domain.queue_message import entry_key, payload_fields
from services.core.domain.retry import backoff_ms
from services.core.engine.bootstrap import DEFAULT_TENANT
from services.core.engine.deliver_message import Entry, MessageDeliverer
from services.core.runtime.traceparent import received
from services.core.store.database import Database
from services.core.store.queues import QueueProject

log = logging.getLogger(__name__)

Probe = Callable[[str], Awaitable[None]]

TENANTS = "runr.tenants"
"""The entry of a stream's metadata that names, with commas, the tenants that may consume it; `*` is all."""

_DATABASE_PAUSE_S = 1.0
_NO_SPIN_S = 0.2


async def no_probe(_point: str) -> None:
    """The probe of production: nothing happens at the commit points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerParts:
    """What the consumers of one process share. `turns` bounds how many of them write at once."""

    bus: Bus
    database: Database
    deliverer: MessageDeliverer
    turns: asyncio.Semaphore
    jitter: random.Random
    max_deliver: int
    probe: Probe = no_probe
    backoff_ms: Callable[[int, float], int] = backoff_ms
    look_again_s: float = 5.0
    check_again_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Taken:
    """A message that can be accepted."""

    message: QueueMessage
    entry: Entry
    trace: str | None


class _DatabaseAway(Exception):
    """Nothing can be accepted now; it is no message's fault."""


class QueueConsumer:
    """Consumes one stream for one project until it is closed."""

    def __init__(self, project: QueueProject, stream: QueueStream, parts: ConsumerParts) -> None:
        self.project = project
        self.stream = stream
        self.state = "starting"
        """`consuming`, or why not; for people."""
        self._parts = parts
        self._closing = False
        self._pull: Pull[QueueMessage] | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Consume, over every fault of NATS and of the database, until cancelled or closed."""
        while not self._closing:
            session = await self._parts.bus.session()
            try:
                await self.stream.ensure(session, self._may_consume)
            except StreamAway as error:
                self._tell(str(error))
                await asyncio.sleep(self._parts.look_again_s)
                continue
            except FAULTS as error:
                self._tell(f"NATS: {type(error).__name__}")
                await asyncio.sleep(_NO_SPIN_S)
                continue
            self._tell("consuming")
            try:
                await self._consume(session)
            except _DatabaseAway:
                self._tell("the database is away")
                await self._until_database_answers()
            except FAULTS as error:
                log.debug("pull of a queue interrupted", extra={"fault": type(error).__name__})
                await asyncio.sleep(_NO_SPIN_S)

    async def close(self) -> None:
        """Take no more; returns when what was taken is accepted, acknowledged or put back."""
        self._closing = True
        if self._pull is not None:
            self._pull.end()
        await self._idle.wait()

    async def _consume(self, session: Session) -> None:
        """Pull until the consumer is gone, the session ends, the database does, or it is time to look at the stream."""

        async def take(messages: list[QueueMessage]) -> None:
            self._idle.clear()
            try:
                await self._take(session, messages)
            finally:
                self._idle.set()

        time = asyncio.get_running_loop().time
        until = time() + self._parts.check_again_s
        while not self._closing and not session.closed.is_set() and (left_s := until - time()) > 0:
            self._pull = self.stream.pull(session, expires_s=left_s)
            await self.stream.run_pull(self._pull, take)
            if self._pull.received == 0:
                await asyncio.sleep(_NO_SPIN_S)  # refused requests end at once
            if self._pull.missing:
                return

    async def _take(self, session: Session, messages: Sequence[QueueMessage]) -> None:
        if self._closing:
            await self._put_all_back(session, messages)
            return
        taken = [each for each in [await self._understood(session, message) for message in messages] if each]
        # One transaction for all that belong to one trace, mostly to none.
        waiting = deque(list(group) for _, group in itertools.groupby(taken, key=lambda each: each.trace))
        while waiting:
            group = waiting.popleft()
            try:
                error = await self._fault_of(group)
            except _DatabaseAway:
                rest = [each.message for later in (group, *waiting) for each in later]
                await self._put_all_back(session, rest, delay_s=_DATABASE_PAUSE_S)
                raise
            if error is None:
                await self._parts.probe("before ack")
                for each in group:
                    await acknowledge(session, each.message)
            elif len(group) > 1:
                waiting.extendleft([each] for each in reversed(group))
            else:
                await self._failed(session, group[0].message, error)
            for each in itertools.chain(*waiting) if error is not None else ():
                await hold(session, each.message)

    async def _understood(self, session: Session, message: QueueMessage) -> _Taken | None:
        """The message as an entry; None for one that no event can hold: it is buried."""
        fields = payload_fields(message.payload)
        try:
            entry = self._parts.deliverer.entry(self.project.queue_stream, message.entry, fields)
        except InvalidInput as error:
            await self._bury(session, message, error)
            return None
        trace = received(message.headers.get("traceparent"), message.headers.get("tracestate"))
        return _Taken(message, entry, trace)

    async def _fault_of(self, group: Sequence[_Taken]) -> Exception | None:
        """Accept them all, or none; why not, if the reason is one of them. Raises _DatabaseAway."""
        project = self.project
        try:
            async with self._parts.turns:
                await self._parts.deliverer.deliver_all(
                    project.tenant,
                    project.id,
                    project.queue_stream,
                    [each.entry for each in group],
                    trace=group[0].trace,
                )
        except Unavailable as error:
            if not await self._database_answers():
                raise _DatabaseAway from error
            return error
        except Exception as error:
            if len(group) == 1:
                log.exception("a queue message could not be accepted", extra=self._names())
            return error
        return None

    async def _failed(self, session: Session, message: QueueMessage, error: Exception) -> None:
        if message.deliveries >= self._parts.max_deliver:
            await self._bury(session, message, error)
        else:
            await put_back(session, message, self._delay_s(message))

    async def _bury(self, session: Session, message: QueueMessage, error: Exception) -> None:
        """Make it a dead letter; while that cannot be, it comes again."""
        project, stream = self.project, self.stream
        subject = stream.subjects.dead(project.tenant, project.slug, stream.stream)
        key = entry_key(project.id, project.queue_stream, message.entry)
        reasons = self._reasons(message, error)
        try:
            await bury(session, stream.subjects, message, subject, key, reasons)
        except Exception as fault:  # whatever it is, it must not keep the messages behind it waiting
            log.error("a dead letter could not be kept", extra={**self._names(), "fault": str(fault) or repr(fault)})
            await put_back(session, message, self._delay_s(message))
            return
        log.warning("a queue message is dead", extra={**self._names(), **reasons})

    def _reasons(self, message: QueueMessage, error: Exception) -> Mapping[str, str]:
        """The headers that tell of a death. What is not an error of the domain is not for strangers' eyes."""
        known = isinstance(error, DomainError)
        return {
            "Runr-Reason": error.reason if isinstance(error, DomainError) else "INTERNAL",
            "Runr-Error": str(error)[:500] if known else f"could not be accepted ({type(error).__name__})",
            "Runr-Tenant": self.project.tenant_slug,
            "Runr-Project": self.project.slug,
            "Runr-Stream": self.stream.stream,
            "Runr-Subject": message.subject,
            "Runr-Entry": message.entry,
            "Runr-Deliveries": str(message.deliveries),
        }

    async def _put_all_back(self, session: Session, messages: Sequence[QueueMessage], *, delay_s: float = 0.0) -> None:
        with contextlib.suppress(*FAULTS):  # those that are not put back come again when their time is over
            for message in messages:
                await put_back(session, message, delay_s)

    def _delay_s(self, message: QueueMessage) -> float:
        return self._parts.backoff_ms(message.deliveries, self._parts.jitter.uniform(0.8, 1.2)) / 1_000

    async def _database_answers(self) -> bool:
        try:
            await self._parts.database.ping()
        except Unavailable:
            return False
        return True

    async def _until_database_answers(self) -> None:
        while True:
            if await self._database_answers():
                return
            await asyncio.sleep(_DATABASE_PAUSE_S)

    def _may_consume(self, metadata: Mapping[str, str]) -> bool:
        """A stream that names tenants is theirs. One that names none is the platform's own."""
        named = metadata.get(TENANTS)
        if named is None:
            return self.project.tenant_slug == DEFAULT_TENANT
        return bool({"*", self.project.tenant_slug} & {each.strip() for each in named.split(",")})

    def _tell(self, state: str) -> None:
        """Say once, not at every look, what becomes of the stream."""
        if state == self.state:
            return
        consuming = state == "consuming"
        if not consuming or self.state != "starting":
            log.log(logging.INFO if consuming else logging.WARNING, "queue stream: %s", state, extra=self._names())
        self.state = state

    def _names(self) -> dict[str, str]:
        return {
            "tenant": self.project.tenant_slug,
            "project": self.project.slug,
            "stream": self.stream.stream,
        }
