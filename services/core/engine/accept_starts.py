"""The runs that accepted events start: the rows, and what is told of them afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from services.core.engine.accept_plan import AcceptRequest, EventPlan
from services.core.engine.hit_runs import Aftermath
from services.core.engine.run_spans import RunSpans
from services.core.engine.starts import cancel_waits, start_row
from services.core.runtime.ids import UlidFactory, ids_from
from services.core.store.commit_item import StartRow, WaitRow

Started = tuple[AcceptRequest, UUID, str, str | None]
"""Request, run, workflow and the run's trace."""


@dataclass(slots=True)
class EventStarts:
    """The rows of all that events start, in the order of the events and of what each starts."""

    rows: list[StartRow] = field(default_factory=list)
    waits: list[WaitRow] = field(default_factory=list)

    @classmethod
    def of(cls, plans: Sequence[EventPlan], ids: UlidFactory, spans: RunSpans) -> EventStarts:
        """Those that the plans ask for."""
        starts = cls()
        count = sum(len(plan.starts) for plan in plans)
        runs = iter(ids_from(ids.block(count), count) if count else ())
        for plan in plans:
            for entry in plan.starts:
                run = next(runs)
                row = start_row(
                    entry,
                    run=run,
                    source="queue" if plan.incoming.src == "q" else "event",
                    event=plan.id,
                    event_name=plan.incoming.name,
                    event_ts=plan.ts,
                    event_data=None,
                    trigger=plan.value,
                    test=plan.incoming.test,
                    trace=spans.place(plan.request.trace),
                )
                starts.rows.append(row)
                starts.waits += cancel_waits(entry, run, plan.value)
        return starts

    def note(
        self, plans: Sequence[EventPlan], found: Sequence[tuple[UUID, bool]], aftermath: Aftermath
    ) -> Iterator[Started]:
        """Note in the plans and the aftermath which runs the starts led to, each new or not; tell the new ones."""
        ended = iter(zip(self.rows, found, strict=True))
        for plan in plans:
            for entry in plan.starts:
                row, (run, is_new) = next(ended)
                plan.runs.append(run)
                if not is_new:
                    continue
                if row.ga is None:
                    aftermath.ready.append(run)
                else:
                    aftermath.gates.add((row.ga, row.gb))
                    plan.goes_on = True
                yield plan.request, run, entry.name, row.trace
