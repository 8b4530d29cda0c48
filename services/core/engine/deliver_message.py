"""Deliver messages of queues: each becomes an event of its tenant, accepted once (engine section 3, "Queue bridge").

The key of a message is its project, its stream and the entry's id, in a namespace that no sender of events reaches:
what a queue delivers again is answered as the duplicate that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.core.domain.event import EventLimits, NewEvent
from services.core.domain.queue_message import check_entry_id, entry_key, queue_event
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a stream: its entry's id, and the event that it becomes."""

    id: str
    event: NewEvent


class MessageDeliverer:
    """Delivers messages of a project's queue stream."""

    def __init__(self, acceptor: EventAcceptor, limits: EventLimits) -> None:
        self._acceptor = acceptor
        self._limits = limits

    def entry(self, queue_stream: str, entry_id: str, fields: bytes | str) -> Entry:
        """The entry with these fields, JSON of an object. Raises InvalidInput, Malformed, TooLarge."""
        check_entry_id(entry_id)
        return Entry(entry_id, queue_event(queue_stream, fields, self._limits))

    async def deliver(
        self,
        tenant: int,
        project: int,
        queue_stream: str,
        entry_id: str,
        fields: bytes | str,
        *,
        trace: str | None = None,
    ) -> Accepted:
        """Accept one message. Raises as `entry`, and Unavailable: then nothing was accepted, deliver it again."""
        entry = self.entry(queue_stream, entry_id, fields)
        return (await self.deliver_all(tenant, project, queue_stream, [entry], trace=trace))[0]

    async def deliver_all(
        self, tenant: int, project: int, queue_stream: str, entries: Sequence[Entry], *, trace: str | None = None
    ) -> list[Accepted]:
        """Accept all of them in their order or, on an error, none. Raises Unavailable."""
        incoming = [
            Incoming(
                name=entry.event.name,
                data=entry.event.data,
                event_id=entry_key(project, queue_stream, entry.id),
                src="q",
                source="queue",
                project=project,
            )
            for entry in entries
        ]
        return await self._acceptor.accept(tenant, incoming, trace=trace)
