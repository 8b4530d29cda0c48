"""Ingest as it is served: the real composition root, a real database, gRPC calls with tokens (engine section 3)."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from runr.workflows.v1 import (
    event_service_pb2,
    resources_pb2,
    run_service_pb2,
)

from services.core.domain.errors import (
    Conflict,
    InvalidInput,
    Malformed,
    NotFound,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
)
from services.core.domain.op import RunCompleted, Sleep, StepCompleted, WaitForEvent
from services.core.engine.declare import Declarer
from services.core.engine.tokens import hash_token
from services.core.runtime.ids import ulid_text, ulid_uuid
from services.core.store.access import insert_token
from services.core.store.database import Database
from tests.support.hand import Hand
from tests.support.ingest_service import Ingest, ask, ingest, refused

VIEWER = "runr_test_viewer_token"

__all__ = ["ingest"]


async def test_ready_without_nats_and_says_so(ingest: Ingest) -> None:
    ready, report = await ingest.health.readiness()
    assert ready
    assert report["nats"] == "away"
    assert report["database"] == "ok"


async def test_an_event_starts_resumes_and_cancels_and_is_shown(ingest: Ingest, hand: Hand) -> None:
    await hand.declare(
        {"name": "work", "triggers": [{"event": "order"}]}, {"name": "doomed", "cancel_on": [{"event": "order"}]}
    )
    waiting = (await ingest.start()).run.id
    await hand.answer(ulid_uuid(waiting), WaitForEvent(id="w", name="w", event="order", timeout_ms=60_000))
    doomed = (await ingest.start("doomed")).run.id
    (result,) = await ingest.send({"name": "order", "data": b'{"n": 1.0}', "id": "o-1", "ts": 7}, test=True)
    assert (result.name, result.duplicate, result.resumed, result.cancelled) == ("order", False, 1, 1)
    (started,) = result.run_ids
    run = (await ingest.get(started)).run
    assert (run.source, run.test, run.event.id) == (resources_pb2.RUN_SOURCE_EVENT, True, result.id)
    assert (run.event.data, run.event.ts, run.trace_id) == (b'{"n": 1.0}', 7, "c" * 32)
    assert (await ingest.get(doomed)).run.state == resources_pb2.RUN_STATE_CANCELLED
    (again,) = await ingest.send({"name": "order", "data": b"{}", "id": "o-1"})
    assert (again.id, again.duplicate, list(again.run_ids)) == (result.id, True, [started])
    event = (await ask(ingest.events.GetEvent, event_service_pb2.GetEventRequest(event_id=result.id))).event
    assert (event.data, event.event_id, event.test) == (b'{"n": 1.0}', "o-1", True)
    assert (event.source, event.trace_id) == (resources_pb2.EVENT_SOURCE_API, "c" * 32)
    assert (list(event.effects.started_run_ids), event.effects.started) == ([started], 1)
    listed = await ask(ingest.events.ListEvents, event_service_pb2.ListEventsRequest(name_prefix="ord"))
    assert [(each.id, each.HasField("data")) for each in listed.events] == [(result.id, False)]


async def test_every_fault_of_events_is_named_and_nothing_is_stored(ingest: Ingest) -> None:
    error = await refused(
        InvalidInput,
        ingest.send(
            {"name": "good"}, {"name": "bad name"}, {"name": "x", "data": b"[1]"}, {"name": "runr/x", "ts": -1}
        ),
    )
    assert [fault.path for fault in error.errors] == [
        "events[1].name",
        "events[2].data",
        "events[3].name",
        "events[3].ts",
    ]
    error = await refused(Malformed, ingest.send({"name": "x", "data": b'{"a":'}))
    assert error.errors[0].path.startswith("events[0].data")
    await refused(Malformed, ingest.send({"name": "x", "data": b"\xff"}))
    await refused(TooLarge, ingest.send({"name": "x", "data": b'{"s":"' + b"y" * 300_000 + b'"}'}))
    await refused(InvalidInput, ingest.send())
    await refused(InvalidInput, ingest.send(*({"name": "x"} for _ in range(101))))
    listed = await ask(ingest.events.ListEvents, event_service_pb2.ListEventsRequest())
    assert not listed.events


async def test_a_start_answers_the_run_and_its_key_leads_to_it_again(ingest: Ingest) -> None:
    first = await ingest.start(
        data=b'{"n": 12345678901234567890}', idempotency_key="k", tags=["a", "b", "a"], delay=Duration(seconds=60)
    )
    run = first.run
    assert not first.existing
    assert (run.workflow, run.project, run.state) == ("work", "default", resources_pb2.RUN_STATE_QUEUED)
    assert (run.idempotency_key, list(run.tags), run.trace_id) == ("k", ["a", "b"], "c" * 32)
    assert run.due_at.ToMilliseconds() - run.created_at.ToMilliseconds() == pytest.approx(60_000, abs=1)
    again = await ingest.start(idempotency_key="k")
    assert (again.existing, again.run) == (True, run)
    assert (await ingest.get(run.id)).run.event.data == b'{"n": 12345678901234567890}'


async def test_a_start_that_breaks_a_rule(ingest: Ingest, hand: Hand, database: Database) -> None:
    error = await refused(InvalidInput, ingest.start(idempotency_key="k" * 256, tags=["ok", "", "x" * 101]))
    assert [fault.path for fault in error.errors] == ["tags[1]", "tags[2]", "idempotency_key"]
    error = await refused(InvalidInput, ingest.start(tags=[str(n) for n in range(11)]))
    assert error.errors[0].path == "tags"
    await refused(InvalidInput, ingest.start(data=b"[]"))
    await refused(Malformed, ingest.start(data=b"{"))
    await refused(TooLarge, ingest.start(data=b'{"s":"' + b"y" * 1_100_000 + b'"}'))
    await refused(InvalidInput, ingest.start(delay=Duration(seconds=-1)))
    await refused(InvalidInput, ingest.start(at=Timestamp(seconds=10**15)))
    await refused(NotFound, ingest.start("unknown"))
    error = await refused(InvalidInput, ingest.start(project="unknown\0"))
    assert [fault.path for fault in error.errors] == ["project"]
    await Declarer(database, lambda _: None).set_active(hand.tenant, "default", "work", False)
    await refused(Conflict, ingest.start())
    listed = await ask(ingest.runs.ListRuns, run_service_pb2.ListRunsRequest())
    assert not listed.runs


async def test_lists_of_runs_go_on_behind_their_token_and_only_with_their_filter(ingest: Ingest) -> None:
    started = [(await ingest.start()).run.id for _ in range(5)]
    request = run_service_pb2.ListRunsRequest(project="default", page_size=2)
    found: list[str] = []
    while True:
        page = await ask(ingest.runs.ListRuns, request)
        found += [run.id for run in page.runs]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == started[::-1]
    token = request.page_token
    for bad in (
        run_service_pb2.ListRunsRequest(project="default", workflow="work", page_token=token),
        run_service_pb2.ListRunsRequest(page_token="nonsense"),
        run_service_pb2.ListRunsRequest(query="a\0b"),
        run_service_pb2.ListRunsRequest(query="x" * 256),
        run_service_pb2.ListRunsRequest(tags=[""]),
        run_service_pb2.ListRunsRequest(states=[99]),  # type: ignore[list-item]
        run_service_pb2.ListRunsRequest(since=Timestamp(seconds=2**60)),
    ):
        await refused(InvalidInput, ask(ingest.runs.ListRuns, bad))
    await refused(NotFound, ask(ingest.runs.ListRuns, run_service_pb2.ListRunsRequest(project="unknown")))
    await refused(InvalidInput, ask(ingest.events.ListEvents, event_service_pb2.ListEventsRequest(name_prefix="a\0")))


async def test_steps_of_a_run_go_on_behind_their_token(ingest: Ingest, hand: Hand) -> None:
    run_id = (await ingest.start()).run.id
    ops = [StepCompleted(id=f"s{n}", name=f"s{n}", output=str(n)) for n in range(3)]
    await hand.answer(ulid_uuid(run_id), *ops, Sleep(id="nap", name="nap", for_ms=60_000))
    request = run_service_pb2.GetRunRequest(run_id=run_id, page_size=2)
    first = await ask(ingest.runs.GetRun, request)
    request.page_token = first.next_page_token
    second = await ask(ingest.runs.GetRun, request)
    steps = [*first.steps, *second.steps]
    assert [step.id for step in steps] == ["s0", "s1", "s2", "nap"]
    assert [step.output for step in steps] == [b"0", b"1", b"2", b""]
    assert steps[3].state == resources_pb2.STEP_STATE_SLEEPING
    assert second.next_page_token == ""


async def looked_after(ingest: Ingest, run_id: str) -> None:
    """Those who wait for the run have been looked after some times: one who came after them has waited in vain."""
    request = run_service_pb2.AwaitRunRequest(run_id=run_id)
    request.wait.FromMilliseconds(120)
    assert not (await asyncio.create_task(ask(ingest.runs.AwaitRun, request))).ended


async def test_awaiting_a_run_ends_when_it_ends(ingest: Ingest, hand: Hand) -> None:
    run_id = (await ingest.start()).run.id
    request = run_service_pb2.AwaitRunRequest(run_id=run_id)
    assert not (await ask(ingest.runs.AwaitRun, request)).ended
    request.wait.FromMilliseconds(120)
    still = await ask(ingest.runs.AwaitRun, request)
    assert (still.ended, still.state) == (False, resources_pb2.RUN_STATE_QUEUED)
    request.wait.FromSeconds(3_600)  # is clamped, and longer than the deadline of the call
    waiting = [asyncio.create_task(ask(ingest.runs.AwaitRun, request)) for _ in range(50)]
    await looked_after(ingest, run_id)
    assert not any(task.done() for task in waiting)
    await hand.answer(ulid_uuid(run_id), RunCompleted(output='{"n":1.0}'))
    async with asyncio.timeout(5):
        answers = await asyncio.gather(*waiting)
    assert {(answer.ended, answer.state, answer.output) for answer in answers} == {
        (True, resources_pb2.RUN_STATE_COMPLETED, b'{"n":1.0}')
    }


async def test_a_drain_lets_callers_go_who_wait_for_a_run(ingest: Ingest) -> None:
    run_id = (await ingest.start()).run.id
    request = run_service_pb2.AwaitRunRequest(run_id=run_id, wait=Duration(seconds=60))
    waiting = asyncio.create_task(ask(ingest.runs.AwaitRun, request))
    await looked_after(ingest, run_id)
    assert not waiting.done()
    ingest.request_stop()
    async with asyncio.timeout(5):
        assert not (await waiting).ended


async def test_a_cancel_answers_the_cancelled_run_and_a_second_one_is_a_conflict(ingest: Ingest) -> None:
    request = run_service_pb2.CancelRunRequest(run_id=(await ingest.start()).run.id)
    run = (await ask(ingest.runs.CancelRun, request)).run
    assert (run.state, run.HasField("ended_at")) == (resources_pb2.RUN_STATE_CANCELLED, True)
    assert (await refused(Conflict, ask(ingest.runs.CancelRun, request))).reason == "RUN_ENDED"


@pytest.mark.parametrize("id", ["", "nonsense", ulid_text(ulid_uuid("0" * 26))])
async def test_what_is_not_there_is_not_found(ingest: Ingest, id: str) -> None:
    for method, request in (
        (ingest.runs.GetRun, run_service_pb2.GetRunRequest(run_id=id)),
        (ingest.runs.AwaitRun, run_service_pb2.AwaitRunRequest(run_id=id, wait=Duration(seconds=1))),
        (ingest.runs.CancelRun, run_service_pb2.CancelRunRequest(run_id=id)),
        (ingest.events.GetEvent, event_service_pb2.GetEventRequest(event_id=id)),
    ):
        await refused(NotFound, ask(method, request))


async def test_who_may_not_is_refused(ingest: Ingest, hand: Hand, database: Database) -> None:
    async with database.connection() as connection:
        await insert_token(
            connection,
            id=hand.ids.new(),
            tenant=hand.tenant,
            name="viewer",
            token_hash=hash_token(VIEWER),
            abilities=["workflows.view"],
            expires_ms=None,
        )
    list_runs, start = run_service_pb2.ListRunsRequest(), run_service_pb2.StartRunRequest()
    await ask(ingest.runs.ListRuns, list_runs, token=VIEWER)
    await refused(PermissionDenied, ask(ingest.runs.StartRun, start, token=VIEWER))
    await refused(PermissionDenied, ask(ingest.events.SendEvents, event_service_pb2.SendEventsRequest(), token=VIEWER))
    await refused(Unauthenticated, ask(ingest.runs.ListRuns, list_runs, token=None))
    await refused(Unauthenticated, ask(ingest.runs.ListRuns, list_runs, token="another"))
    await refused(PermissionDenied, ask(ingest.runs.ListRuns, list_runs, tenant="other"))
