"""Events as they are shown: one with what it did, and lists (engine sections 3 and 6)."""

from __future__ import annotations

from uuid import UUID

import pytest

from services.core.domain.errors import NotFound
from services.core.domain.event_record import EventFilter, SkippedStart
from services.core.domain.op import WaitForEvent
from services.core.store.database import Database
from services.core.store.events import EventReader
from tests.support.hand import Hand


@pytest.fixture
def reader(database: Database) -> EventReader:
    return EventReader(database)


async def found(reader: EventReader, hand: Hand, *, limit: int = 50, **wanted: object) -> list[UUID]:
    """All ids that a filter finds, a page at a time."""
    seen: list[UUID] = []
    after = None
    while True:
        page = await reader.list(hand.tenant, EventFilter(**wanted), after=after, limit=limit)  # type: ignore[arg-type]
        assert len(page.events) <= limit
        assert all(event.data is None for event in page.events)
        seen += [event.id for event in page.events]
        after = page.next
        if after is None:
            return seen


async def test_an_event_has_its_data_byte_for_byte_and_what_it_did(reader: EventReader, hand: Hand) -> None:
    await hand.declare(
        {"name": "work", "triggers": [{"event": "order"}]},
        {"name": "never", "triggers": [{"event": "order", "if": "event.data.n > 5"}]},
        {"name": "doomed", "cancel_on": [{"event": "order"}]},
    )
    waiting, doomed = await hand.start("work"), await hand.start("doomed")
    await hand.answer(waiting, WaitForEvent(id="w", name="w", event="order", timeout_ms=60_000))
    accepted = await hand.send("order", '{"n": 1.0,"s":"\\u0000"}', event_id="o-1", ts=77, test=True)
    event = await reader.one(hand.tenant, accepted.id)
    assert (event.name, event.data, event.ts, event.event_id) == ("order", '{"n": 1.0,"s":"\\u0000"}', 77, "o-1")
    assert (event.source, event.test, event.project, event.run) == ("api", True, None, None)
    assert (event.effects.runs, event.effects.resumed, event.effects.cancelled) == (accepted.runs, 1, 1)
    assert len(event.effects.runs) == 1
    assert event.effects.skipped == ()
    assert (event.effects.resumed_runs, event.effects.cancelled_runs) == ((waiting,), (doomed,))


async def test_an_archived_workflow_is_told_as_skipped(reader: EventReader, hand: Hand) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "order"}]})
    await hand.declare()
    accepted = await hand.send("order")
    event = await reader.one(hand.tenant, accepted.id)
    assert event.effects.runs == ()
    assert event.effects.skipped == (SkippedStart(workflow="work", project="default", reason="archived"),)


async def test_an_event_of_a_workflow_names_its_project_and_run(
    reader: EventReader, hand: Hand, database: Database
) -> None:
    run = await hand.start("work")
    async with database.connection() as connection:
        project = await connection.fetchval("select id from rt.projects where tenant = $1", hand.tenant)
    sent = await hand.send("a", source="workflow", project=project, run=run, src="w", event_id="x")
    other = await hand.send("a")
    event = await reader.one(hand.tenant, sent.id)
    assert (event.source, event.project, event.run) == ("workflow", "default", run)
    assert await found(reader, hand, project="default") == [sent.id]
    assert await found(reader, hand, source="workflow") == [sent.id]
    assert await found(reader, hand, source="api") == [other.id]
    with pytest.raises(NotFound):
        await found(reader, hand, project="unknown")


@pytest.mark.parametrize("limit", [1, 3, 50])
async def test_lists_are_newest_first_and_pages_hold_each_event_once(
    reader: EventReader, hand: Hand, limit: int
) -> None:
    sent = [(await hand.send("a")).id for _ in range(6)]
    page = await reader.list(hand.tenant, EventFilter(), after=None, limit=limit)
    await hand.send("a")  # newer than the first page: not in the pages behind it
    following: list[UUID] = []
    after = page.next
    while after is not None:
        behind = await reader.list(hand.tenant, EventFilter(), after=after, limit=limit)
        following += [event.id for event in behind.events]
        after = behind.next
    assert [event.id for event in page.events] + following == list(reversed(sent))


async def test_names_are_found_by_their_beginning_and_no_character_is_a_wildcard(
    reader: EventReader, hand: Hand
) -> None:
    names = ("a", "a_b", "a.b", "a_bc", "axb", "b", "A_b")
    sent = {name: (await hand.send(name)).id for name in names}
    again = (await hand.send("a_b")).id
    assert await found(reader, hand, name_prefix="a_b", limit=1) == [again, sent["a_bc"], sent["a_b"]]
    assert len(await found(reader, hand, name_prefix="a")) == 6
    assert await found(reader, hand, name_prefix="A") == [sent["A_b"]]
    assert await found(reader, hand, name_prefix="a.b.c") == []


async def test_a_beginning_that_very_many_names_have(reader: EventReader, hand: Hand) -> None:
    sent = [(await hand.send(f"n{number}")).id for number in range(105)]
    await hand.send("m")
    assert await found(reader, hand, name_prefix="n", limit=20) == list(reversed(sent))


async def test_by_time(reader: EventReader, hand: Hand) -> None:
    sent = [(await hand.send("a")).id for _ in range(3)]
    at = (await reader.one(hand.tenant, sent[1])).received_ms
    since, until = await found(reader, hand, since_ms=at), await found(reader, hand, until_ms=at)
    assert sent[1] in since
    assert sorted([*since, *until]) == sent
    assert await found(reader, hand, since_ms=at + 60_000) == []


async def test_another_tenants_event_is_not_found(reader: EventReader, hand: Hand, database: Database) -> None:
    sent = (await hand.send("a")).id
    async with database.connection() as connection:
        other = await connection.fetchval("select rt.create_tenant('other', 'Other')")
    with pytest.raises(NotFound):
        await reader.one(other, sent)
    assert (await reader.list(other, EventFilter(), after=None, limit=50)).events == ()
