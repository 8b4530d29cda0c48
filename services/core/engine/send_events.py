"""`step.send_event`: durable with its step as a mark, carried out right after the commit, or by a sweep if that never
came (rulings C13). Its ids are fixed when the mark is written, so carrying it out again changes nothing.

The step answers the ids of the events that are stored. They are known when the mark is written, unless the function
gave an event an id: an event of that id may be there already. Such a step is stored without an output, which whoever
carries the mark out adds; until then the run does not go on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import asyncpg

from services.core.domain.effect import SendEvents
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.sweeping import sweep_marks
from services.core.runtime.ids import UlidFactory, ids_from, ulid_text
from services.core.store.database import Database
from services.core.store.queries import queries, tenant_query


@dataclass(frozen=True, slots=True)
class SendMark:
    """The events of one step of a run, with everything that makes accepting them twice harmless."""

    run: UUID
    step: str
    accept_id: UUID
    ids: tuple[UUID, ...]
    events: tuple[Incoming, ...]
    trace: str | None = None

    @classmethod
    def of(
        cls, effect: SendEvents, *, run: UUID, project: int, test: bool, ids: UlidFactory, trace: str | None = None
    ) -> SendMark:
        """The mark of a send_event step of `run`. An id that the function left out is made of run, step and place.

        `trace` is the `traceparent` of the invocation that answered the step: what the events start goes below it.
        """
        incoming = [
            Incoming(
                name=event.name,
                data=event.data,
                event_id=event.id if event.id is not None else f"{ulid_text(run)}/{effect.id}/{place}",
                src="u" if event.id is not None else "w",
                ts=event.ts,
                source="workflow",
                project=project,
                run=run,
                test=test,
            )
            for place, event in enumerate(effect.events)
        ]
        return cls(
            run,
            effect.id,
            uuid4(),
            tuple(ids_from(ids.block(max(1, len(incoming))), len(incoming))),
            tuple(incoming),
            trace,
        )

    @property
    def ids_are_known(self) -> bool:
        """Whether the events will be stored under the mark's ids: nobody else uses the keys that the engine makes."""
        return all(event.src == "w" for event in self.events)

    def to_json(self) -> str:
        """The mark's body."""
        events = [
            {
                "id": str(id),
                "name": event.name,
                "data": event.data,
                "event_id": event.event_id,
                "src": event.src,
                "ts": event.ts,
                "project": event.project,
                "test": event.test,
            }
            for id, event in zip(self.ids, self.events, strict=True)
        ]
        sender = {"run": str(self.run), "step": self.step}
        return json.dumps({"accept_id": str(self.accept_id), "events": events, "trace": self.trace, **sender})

    @classmethod
    def from_json(cls, body: str) -> SendMark:
        """The mark of a stored body."""
        document = json.loads(body)
        run = UUID(document["run"])
        ids = tuple(UUID(event.pop("id")) for event in document["events"])
        events = tuple(Incoming(**event, run=run, source="workflow") for event in document["events"])
        return cls(run, document["step"], UUID(document["accept_id"]), ids, events, document["trace"])


def sent_output(ids: Sequence[UUID]) -> str:
    """What a send_event step answers: `{"ids": [...]}`."""
    return json.dumps({"ids": [ulid_text(id) for id in ids]})


class SendEventMarks:
    """Carries out marks of kind send_event."""

    def __init__(self, database: Database, acceptor: EventAcceptor) -> None:
        self._database = database
        self._acceptor = acceptor

    async def sweep(self, min_age_ms: int, limit: int = 100) -> int:
        """Accept the events of all marks that are older than `min_age_ms`, `limit` at a time. Returns how many marks
        were done.

        A mark whose events cannot be accepted stays, is logged, and holds up no other. Raises Unavailable.
        """
        return await sweep_marks(self._database, "send_marks", self._carry_out, min_age_ms=min_age_ms, limit=limit)

    async def accept(self, tenant: int, mark: SendMark) -> str:
        """Accept the events of a stored mark; doing it again changes nothing. The output of the step that sent them.

        The mark stays until it is swept. Raises Unavailable.
        """
        accepted = await self._acceptor.accept_as(
            tenant, mark.events, mark.ids, accept_id=mark.accept_id, trace=mark.trace
        )
        output = sent_output([each.id for each in accepted])
        if not mark.ids_are_known:
            async with self._database.connection() as connection:
                await connection.execute(tenant_query("engine", "name_sent", tenant), mark.run, mark.step, output)
        return output

    async def _carry_out(self, row: asyncpg.Record) -> None:
        await self.accept(row["tenant"], SendMark.from_json(row["body"]))
        async with self._database.connection() as connection:
            await connection.execute(queries("engine")["delete_marks"], [row["id"]])
