"""Spans of what happens to runs that nobody holds: timers, timeouts, lost processes, ends of children, cancels."""

from __future__ import annotations

import logging
import uuid
from collections.abc import AsyncIterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from services.core.engine.hints import Hints
from services.core.engine.run_traces import RunTraces
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import ulid_text
from services.core.runtime.settings import LeaseSettings, TelemetrySettings
from services.core.runtime.telemetry import Telemetry, start_telemetry
from services.core.runtime.traceparent import inject
from services.core.store.database import Database
from services.core.store.database_clock import DatabaseClock
from services.scheduler.duties.marks import Marks
from services.scheduler.duties.rescue import Rescue
from services.scheduler.duties.timeout import Timeout
from services.scheduler.duties.wake import Wake
from services.scheduler.partitions import Partitions
from tests.support.live_rows import DAY_MS, LiveRows, Recorder

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-1] + "0"

Made = tuple[str, str | None]
"""A span's name, and the text of its failure."""


class Story:
    """The duties of a scheduler whose spans are kept in memory."""

    def __init__(self, rows: LiveRows, telemetry: Telemetry, exporter: InMemorySpanExporter) -> None:
        hints, clock = Hints(Recorder()), SystemClock()
        self.traces = RunTraces(rows.database, telemetry)
        self.marks = Marks(rows.database, hints, self.traces)
        self.timeout = Timeout(rows.database, hints, self.marks.nudge, self.traces)
        self.rescue = Rescue(
            rows.database, hints, clock, LeaseSettings(), self.marks.nudge, settle_s=0, traces=self.traces
        )
        partitions = Partitions(rows.database.dsn, node="test", clock=clock)
        self.wake = Wake(rows.database, partitions, hints, clock, DatabaseClock(clock), self.traces)
        self._telemetry = telemetry
        self._exporter = exporter

    async def spans(self) -> list[ReadableSpan]:
        """What was recorded, all of it below the start of its run."""
        await self.traces.drain()
        self._telemetry.flush()
        made = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        assert {inject(span.parent) for span in made if span.parent} <= {SAMPLED}
        assert all(span.parent for span in made)
        return made

    async def made(self) -> list[Made]:
        """Names and failures of what was recorded, sorted by name."""
        return sorted(((span.name, _failure(span)) for span in await self.spans()), key=str)


def _failure(span: ReadableSpan) -> str | None:
    return span.status.description if span.status.status_code is StatusCode.ERROR else None


@pytest.fixture
async def story(rows: LiveRows) -> AsyncIterator[Story]:
    await rows.rows(
        "insert into rt.workflows (tenant, id, project, name, definition) values ($1, 1, 1, 'work', '{}')", rows.tenant
    )
    exporter = InMemorySpanExporter()
    telemetry = start_telemetry("scheduler", TelemetrySettings(), exporter=exporter)
    yield Story(rows, telemetry, exporter)
    telemetry.close()


async def all_due(rows: LiveRows) -> None:
    """Everything is due that has a time, a second ago: also what an executor was to fire."""
    await rows.rows("update rt.wait set due_at = rt.now() - interval '1 s' where due_at is not null")


async def stored(rows: LiveRows, run: uuid.UUID, sid: str) -> tuple[int, int]:
    row = await rows.row("select rt.ms(t0) as t0, rt.ms(t1) as t1 from rt.steps where run = $1 and sid = $2", run, sid)
    assert row is not None
    return row["t0"] * 1_000_000, row["t1"] * 1_000_000


async def test_timers_of_every_kind(rows: LiveRows, story: Story) -> None:
    run = await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS)], trace=SAMPLED)
    await rows.rest("d", [rows.wait("b", delay_ms=DAY_MS)], trace=SAMPLED)
    await rows.rest("d", [rows.wait("d", delay_ms=DAY_MS)], trace=SAMPLED)
    await rows.rest("w", [rows.wait("e", delay_ms=DAY_MS)], trace=SAMPLED)
    await rows.rest("w", [rows.wait("c", child=uuid.uuid4(), delay_ms=DAY_MS)], trace=SAMPLED)
    await all_due(rows)
    assert (await story.wake.run_once())["fired"] == 5
    spans = {span.name: span for span in await story.spans()}
    assert {name: _failure(span) for name, span in spans.items()} == {
        "sleep s": None,
        "backoff b": None,
        "delay": None,
        "wait e": None,
        "invoke c": "the invoked workflow did not end within the timeout of the step",
    }
    assert dict(spans["wait e"].attributes or {})["runr.timed_out"] is True
    assert dict(spans["sleep s"].attributes or {}) == {
        "runr.run_id": ulid_text(run),
        "runr.workflow": "work",
        "runr.step_id": "s",
    }
    assert (spans["sleep s"].start_time, spans["sleep s"].end_time) == await stored(rows, run, "s")


async def test_a_timeout_ends_the_run_and_cuts_its_waits(rows: LiveRows, story: Story) -> None:
    run = await rows.rest("w", [rows.wait("e", delay_ms=DAY_MS), rows.wait("s", delay_ms=DAY_MS)], trace=SAMPLED)
    await rows.rows("update rt.live set deadline = rt.now() - interval '1 ms'")
    assert (await story.timeout.run_once())["timed_out"] == 1
    spans = {span.name: span for span in await story.spans()}
    assert {name: _failure(span) for name, span in spans.items()} == {
        "run work": "the run did not end within its timeout",
        "wait e": None,
        "sleep s": None,
    }
    assert dict(spans["wait e"].attributes or {})["runr.cut"] is True
    assert "runr.timed_out" not in (spans["wait e"].attributes or {})
    assert dict(spans["run work"].attributes or {})["runr.status"] == "timed_out"
    row = await rows.row(
        "select rt.ms(r.created_at) as created, rt.ms(e.ended) as ended "
        "from rt.runs r join rt.ends e on e.run = r.id where r.id = $1",
        run,
    )
    assert row is not None
    life = spans["run work"]
    assert (life.start_time, life.end_time) == (row["created"] * 1_000_000, row["ended"] * 1_000_000)


async def test_a_lost_process_shows_and_its_last_attempt_ends_the_run(rows: LiveRows, story: Story) -> None:
    await rows.held(await rows.owner(dead=True), trace=SAMPLED)
    await rows.held(await rows.owner(dead=True), trace=SAMPLED, max_att=1)
    counts = await story.rescue.run_once()
    assert (counts["rescued"], counts["failed"]) == (1, 1)
    lost = "the engine process that ran this step disappeared"
    assert await story.made() == [
        ("invoke work", f"WorkerLost: {lost}"),
        ("invoke work", f"WorkerLost: {lost}"),
        ("run work", lost),
    ]


async def test_ends_of_children_resume_and_a_parents_end_cancels(rows: LiveRows, story: Story) -> None:
    owner = await rows.owner()
    for status, error in (("completed", None), ("failed", '{"name":"Oops","message":"no"}')):
        parent = await rows.start_one(trace=SAMPLED)
        child = await rows.held(owner, parent=parent)
        await rows.rest("w", [rows.wait("c", child=child)], run=parent)
        await rows.end(owner, child, status, error=error)
    parent = await rows.start_one()
    child = await rows.held(owner, parent=parent, trace=SAMPLED)
    await rows.rest("w", [rows.wait("c", child=child)], run=parent)
    await rows.rows("select * from rt.finish_v1($1, '{cancelled}', '{null}', '{null}', true)", [parent])
    story.marks.nudge()
    await story.marks.run_once()
    assert await story.made() == [
        ("invoke c", "the invoked run failed: no"),
        ("invoke c", None),
        ("run work", None),
    ]


@pytest.mark.parametrize("trace", [UNSAMPLED, None, "nonsense"])
async def test_a_run_that_is_not_sampled_has_no_spans(rows: LiveRows, story: Story, trace: str | None) -> None:
    await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS)], trace=trace)
    await rows.held(await rows.owner(dead=True), trace=trace, max_att=1)
    await all_due(rows)
    assert (await story.wake.run_once())["fired"] == 1
    assert (await story.rescue.run_once())["failed"] == 1
    assert await story.spans() == []


async def test_while_traces_are_off_nothing_is_read_for_them(rows: LiveRows, caplog: pytest.LogCaptureFixture) -> None:
    traces = RunTraces.off(Database(rows.database.dsn, name="closed"))  # whoever used it would be Unavailable
    caplog.set_level(logging.DEBUG)
    clock = SystemClock()
    partitions = Partitions(rows.database.dsn, node="test", clock=clock)
    wake = Wake(rows.database, partitions, Hints(Recorder()), clock, DatabaseClock(clock), traces)
    await rows.rest("s", [rows.wait("s", delay_ms=DAY_MS)], trace=SAMPLED)
    await all_due(rows)
    assert (await wake.run_once())["fired"] == 1
    traces.ended("cancelled", [(rows.tenant, uuid.uuid4())])
    traces.lost([(rows.tenant, uuid.uuid4())])
    await traces.drain()
    assert [record.message for record in caplog.records if "spans" in record.message] == []


async def test_a_database_that_is_away_costs_spans_and_nothing_else(rows: LiveRows, story: Story) -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_telemetry("scheduler", TelemetrySettings(), exporter=exporter)
    traces = RunTraces(Database(rows.database.dsn, name="closed"), telemetry)
    traces.ended("cancelled", [(rows.tenant, uuid.uuid4())])
    await traces.drain()
    telemetry.close()
    assert exporter.get_finished_spans() == ()


async def test_only_so_much_waits_to_be_looked_up(rows: LiveRows, story: Story) -> None:
    exporter = InMemorySpanExporter()
    telemetry = start_telemetry("scheduler", TelemetrySettings(), exporter=exporter)
    traces = RunTraces(rows.database, telemetry, max_noted=2)
    owner = await rows.owner()
    runs = [await rows.held(owner, trace=SAMPLED) for _ in range(3)]
    for _ in range(2):  # the room is there again once the first are recorded
        traces.lost((rows.tenant, run) for run in runs)
        await traces.drain()
    telemetry.close()
    assert len(exporter.get_finished_spans()) == 4
