"""The streams of ingest as they are served: each item is what a unary call is, whatever else is in its message."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import grpc
import pytest
from runr.workflows.v1 import event_service_pb2, resources_pb2, run_service_pb2

from services.core.domain.errors import (
    DomainError,
    InvalidInput,
    Malformed,
    NotFound,
    PermissionDenied,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.tokens import ALL_ABILITIES, hash_token
from services.core.rpc.channel import call_metadata
from services.core.rpc.status import from_status
from services.core.rpc.submissions import Kind, Submission, Submissions
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_unix_ms, ulid_uuid
from services.core.runtime.owned_ids import OwnedIds
from services.core.runtime.sealing import Sealer
from services.core.store.access import insert_token, revoke_token
from services.core.store.database import Database
from tests.support.grpc_backend import no_telemetry
from tests.support.hand import Hand, neighbour
from tests.support.ingest_service import TRACE, Ingest, ingest
from tests.support.live_rows import LiveRows, rows
from tests.support.locks import held_up
from tests.support.tenancy import BOOTSTRAP_TOKEN
from tests.support.waiting import until

__all__ = ["ingest", "rows"]

IDS = UlidFactory(SystemClock(), random.Random())
Item = run_service_pb2.SubmitStartsRequest.Item


class Stream:
    """A stream to ingest. `ends` are the answers and errors of items, by their numbers."""

    def __init__(self, call: Any, form: Any) -> None:
        self.call = call
        self.form = form
        self.ends: dict[int, Any] = {}
        self.times: list[int] = []
        self.is_over = asyncio.Event()
        self._numbers = itertools.count(1)
        self._came = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def send(self, *items: Any) -> list[int]:
        """Send these in one message; their numbers."""
        for item in items:
            item.number = next(self._numbers)
        await self.call.write(self.form(items=items))
        return [item.number for item in items]

    async def ended(self, numbers: list[int]) -> list[Any]:
        """What became of these."""
        async with asyncio.timeout(20), self._came:
            await self._came.wait_for(lambda: all(number in self.ends for number in numbers))
        return [self.ends[number] for number in numbers]

    async def asked(self, *items: Any) -> list[Any]:
        """Send these in one message, and what became of each."""
        return await self.ended(await self.send(*items))

    async def _read(self) -> None:
        while (message := await self.call.read()) is not grpc.aio.EOF:
            self.times.append(message.now_ms)
            async with self._came:
                for item in message.items:
                    assert item.number not in self.ends, "answered twice"
                    answered = item.HasField("response")
                    self.ends[item.number] = item.response if answered else from_status(item.status)
                self._came.notify_all()
        self.is_over.set()


@pytest.fixture
async def starts(ingest: Ingest) -> AsyncIterator[Stream]:
    stream = Stream(ingest.runs.SubmitStarts(), run_service_pb2.SubmitStartsRequest)
    yield stream
    stream.call.cancel()
    await asyncio.wait({stream._reading})


@pytest.fixture
async def sends(ingest: Ingest) -> AsyncIterator[Stream]:
    stream = Stream(ingest.events.SubmitEvents(), event_service_pb2.SubmitEventsRequest)
    yield stream
    stream.call.cancel()
    await asyncio.wait({stream._reading})


def start(token: str = BOOTSTRAP_TOKEN, *, tenant: str = "", id: bytes = b"", **fields: Any) -> Item:
    credentials = resources_pb2.Credentials(token=token, tenant=tenant, traceparent=TRACE)
    request = run_service_pb2.StartRunRequest(**{"project": "default", "workflow": "work", **fields})
    return Item(credentials=credentials, request=request, id=id)


def send(*events: dict[str, Any], token: str = BOOTSTRAP_TOKEN, id: bytes = b"") -> Any:
    credentials = resources_pb2.Credentials(token=token, traceparent=TRACE)
    request = event_service_pb2.SendEventsRequest(events=[event_service_pb2.NewEvent(**each) for each in events])
    return event_service_pb2.SubmitEventsRequest.Item(credentials=credentials, request=request, id=id)


async def new_token(database: Database, tenant: int, token: str, *abilities: str) -> Any:
    async with database.transaction() as connection:
        return await insert_token(
            connection,
            id=IDS.new(),
            tenant=tenant,
            name="test",
            token_hash=hash_token(token),
            abilities=abilities or ALL_ABILITIES,
            expires_ms=None,
        )


async def test_an_item_is_answered_as_a_call_is(ingest: Ingest, starts: Stream, hand: Hand) -> None:
    id = IDS.new()
    (plain, keyed) = await starts.asked(
        start(id=id.bytes, tags=["x"], test=True, data=b'{"n": 1.0}'), start(idempotency_key="k")
    )
    made = ulid_uuid(plain.run.id)
    assert (ulid_unix_ms(made), made.int & 0xFFFFFFFF) == (ulid_unix_ms(id), id.int & 0xFFFFFFFF)
    for answer in (plain, keyed):
        shown = (await ingest.get(answer.run.id)).run
        shown.ClearField("event")
        shown.ClearField("waiting_for")  # what it waits for is seen by who reads it
        assert answer.run == shown, "and the same as is read later"
    (again,) = await starts.asked(start(idempotency_key="k"))
    assert (again.run.id, again.existing) == (keyed.run.id, True)


async def test_the_faults_of_some_are_told_to_them_and_the_others_go_on(
    starts: Stream, sends: Stream, rows: LiveRows
) -> None:
    ends = await starts.asked(
        start(),
        start(data=b"[1]"),
        start(data=b'{"a":'),
        start(data=b"\xff"),
        start(workflow="nope"),
        start(workflow="a\0"),
        start(project="nope"),
        start(tags=["x"] * 11),
        start(data=b'{"s":"' + b"y" * 1_100_000 + b'"}'),
        start(id=b"short"),
        start(id=bytes(16)),  # made long ago, or by a clock that was set since
        start(),
    )
    kinds = [type(end) if isinstance(end, DomainError) else None for end in ends]
    assert kinds == [
        *(None, InvalidInput, Malformed, Malformed, NotFound, InvalidInput, NotFound),
        *(InvalidInput, TooLarge, InvalidInput, Unavailable, None),
    ]
    assert await rows.value("select count(*) from rt.live") == 2
    good, bad, none, late = await sends.asked(
        send({"name": "a"}), send({"name": "a"}, {"name": "bad name"}), send(), send({"name": "a"})
    )
    assert [len(each.results) for each in (good, late)] == [1, 1]
    assert isinstance(bad, InvalidInput)
    assert [fault.path for fault in bad.errors] == ["events[1].name"]
    assert isinstance(none, InvalidInput)
    assert await rows.value("select count(*) from rt.events") == 2


async def test_each_item_is_its_own_callers_in_its_own_tenant(
    starts: Stream, sends: Stream, hand: Hand, rows: LiveRows, sealer: Sealer
) -> None:
    async with neighbour(hand, sealer) as other:
        await new_token(hand.database, other.tenant, "the_neighbours_token")
        await new_token(hand.database, hand.tenant, "may_only_look", "workflows.view")
        mine, theirs, stranger, looking, foreign, thief = await starts.asked(
            start(),
            start("the_neighbours_token", project="next-door"),
            start("nobody_knows_this"),
            start("may_only_look"),
            start("the_neighbours_token", tenant="default", project="next-door"),
            start("the_neighbours_token"),
        )
        assert await rows.value("select tenant from rt.live where id = $1", ulid_uuid(mine.run.id)) == hand.tenant
        assert await rows.value("select tenant from rt.live where id = $1", ulid_uuid(theirs.run.id)) == other.tenant
        kinds = [type(end) for end in (stranger, looking, foreign, thief)]
        assert kinds == [Unauthenticated, PermissionDenied, PermissionDenied, NotFound]
        sent, refused = await sends.asked(
            send({"name": "a"}, token="the_neighbours_token"), send({"name": "a"}, token="may_only_look")
        )
        assert isinstance(refused, PermissionDenied)
        tenant = await rows.value("select tenant from rt.events where id = $1", ulid_uuid(sent.results[0].id))
        assert tenant == other.tenant


async def test_an_item_that_comes_again_is_the_same(
    ingest: Ingest, starts: Stream, sends: Stream, hand: Hand, rows: LiveRows
) -> None:
    await hand.declare({"name": "work", "triggers": [{"event": "a"}]})
    run, event = IDS.new().bytes, IDS.block(2).bytes
    another = Stream(ingest.runs.SubmitStarts(), run_service_pb2.SubmitStartsRequest)
    ends = await starts.asked(start(id=run), start(id=run))
    again = start(id=run)
    again.again = True
    ends += await another.asked(start(id=run), again)
    assert {end.run.id for end in ends} == {ulid_text(ulid_uuid(ends[0].run.id))}
    assert not any(end.existing for end in ends)
    events = ({"name": "a", "id": "e"}, {"name": "a"})
    answers = await sends.asked(send(*events, id=event), send(*events, id=event))
    answers += await sends.asked(send(*events, id=event))
    assert answers[0] == answers[1] == answers[2]
    assert [result.duplicate for result in answers[0].results] == [False, False]
    assert await rows.value("select count(*) from rt.live") == 3
    another.call.cancel()
    await asyncio.wait({another._reading})


async def test_f6_an_id_that_is_anothers_is_never_stored_twice(
    ingest: Ingest, starts: Stream, hand: Hand, rows: LiveRows, sealer: Sealer
) -> None:
    await hand.declare({"name": "work", "triggers": []}, {"name": "other", "triggers": []})
    offered = IDS.new()
    (mine,) = await starts.asked(start(id=offered.bytes))
    run = ulid_uuid(mine.run.id)
    await hand.cancel(run)  # nothing of it is live any more
    async with neighbour(hand, sealer) as other:
        await new_token(hand.database, other.tenant, "the_neighbours_token")
        theirs = {"token": "the_neighbours_token", "project": "next-door"}
        twin, thief = await starts.asked(start(id=offered.bytes, **theirs), start(id=run.bytes, **theirs))
        tenants = await rows.rows("select tenant from rt.runs where id = $1", run)
        assert [row["tenant"] for row in tenants] == [hand.tenant]
        for each in (twin, thief):
            found = await rows.rows("select tenant from rt.runs where id = $1", ulid_uuid(each.run.id))
            assert [row["tenant"] for row in found] == [other.tenant], "a run of their own"
    again = start(id=offered.bytes, workflow="other")
    again.again = True
    for end in await starts.asked(start(id=offered.bytes, workflow="other"), again):
        assert isinstance(end, InvalidInput), "one id, two workflows"
    assert await rows.value("select count(*) from rt.runs where id = $1", run) == 1


async def test_f7_overlapping_blocks_of_event_ids_are_refused_by_name(sends: Stream, rows: LiveRows) -> None:
    block = IDS.block(10)
    inside = UUID(int=block.int + 3).bytes
    first = [{"name": f"o{n}"} for n in range(10)]
    (whole,) = await sends.asked(send(*first, id=block.bytes))
    (refused,) = await sends.asked(send({"name": "p"}, {"name": "p"}, id=inside))
    assert isinstance(refused, InvalidInput)
    assert [fault.path for fault in refused.errors] == ["id"]
    assert await sends.asked(send(*first, id=block.bytes)) == [whole], "the same once more"
    assert await rows.value("select count(*) from rt.events") == 10


async def test_a_stream_says_that_it_lives_and_what_time_it_is(starts: Stream) -> None:
    await until(lambda: len(starts.times) >= 3)
    assert all(abs(told - SystemClock().unix_ms()) < 60_000 for told in starts.times)
    assert not starts.ends


async def refuses_calls(ingest: Ingest) -> None:
    """Wait until it takes no call any more; by then its streams read no more.

    A call that comes just as the server stops may get no answer before the stop's grace is over: it is let go.
    """
    nothing = event_service_pb2.SendEventsRequest()
    codes = {grpc.StatusCode.INVALID_ARGUMENT}
    async with asyncio.timeout(10):
        while not codes & {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ingest.events.SendEvents(nothing, metadata=call_metadata(BOOTSTRAP_TOKEN), timeout=1)
            codes = {refused.value.code()}
            await asyncio.sleep(0.005)


async def test_a_drain_answers_what_was_read_and_ends_the_stream(ingest: Ingest, starts: Stream, hand: Hand) -> None:
    async with hand.database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("lock table rt.live in access exclusive mode")
        numbers = await starts.send(*(start() for _ in range(20)))
        await held_up(connection)
        ingest.request_stop()
        await refuses_calls(ingest)
        assert not starts.is_over.is_set()
        await transaction.rollback()
    ends = await starts.ended(numbers)
    assert len({end.run.id for end in ends}) == 20
    async with asyncio.timeout(30):
        await starts.is_over.wait()


async def test_a_token_that_was_taken_back_is_refused_in_a_stream_that_goes_on(hand: Hand) -> None:
    row = await new_token(hand.database, hand.tenant, "to_be_taken_back")
    authenticator = StoreAuthenticator(hand.database, SystemClock(), ttl_s=0.2)
    submissions = Submissions(authenticator, no_telemetry(), SystemClock(), OwnedIds(b"secret"))
    messages: asyncio.Queue[Any] = asyncio.Queue()

    async def coming() -> AsyncIterator[Any]:
        while True:
            yield await messages.get()

    async def take(submission: Submission) -> None:
        submission.answer(run_service_pb2.StartRunResponse(existing=True))

    kind = Kind("/runr.workflows.v1.RunService/StartRun", run_service_pb2.SubmitStartsResponse, take)
    answers = submissions.serve(kind, coming())

    async def asked() -> Any:
        messages.put_nowait(run_service_pb2.SubmitStartsRequest(items=[start("to_be_taken_back")]))
        async with asyncio.timeout(10):
            while not (message := await anext(answers)).items:
                pass
        return message.items[0]

    assert (await asked()).response.existing
    async with hand.database.transaction() as connection:
        await revoke_token(connection, hand.tenant, row.id)

    async def refused() -> Any:
        last = await asked()
        return None if last.HasField("response") else from_status(last.status)

    assert isinstance(await until(refused), Unauthenticated)
    await answers.aclose()


class CountingAuthenticator:
    """Knows nobody, after a moment; counts how many are looked up at once."""

    def __init__(self) -> None:
        self.at_once = self.most = 0

    async def authenticate(self, token: str, tenant_hint: str | None) -> Any:
        """See `Authenticator.authenticate`."""
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        raise Unauthenticated("the token is not known")

    async def denied(self, caller: Any, method: str) -> None:
        """Nobody is known, so nobody is denied anything."""


async def test_strangers_by_the_thousand_are_looked_up_a_few_at_a_time() -> None:
    counting = CountingAuthenticator()
    submissions = Submissions(counting, no_telemetry(), SystemClock(), OwnedIds(b"secret"))

    async def take(_: Submission) -> None:
        raise AssertionError("nobody is known")

    async def messages() -> AsyncIterator[Any]:
        credentials = resources_pb2.Credentials
        yield run_service_pb2.SubmitStartsRequest(
            items=[Item(number=n, credentials=credentials(token=f"t{n}")) for n in range(1, 2_001)]
        )

    kind = Kind("/runr.workflows.v1.RunService/StartRun", run_service_pb2.SubmitStartsResponse, take)
    refused = 0
    async for answer in submissions.serve(kind, messages()):
        refused += len(answer.items)
    assert refused == 2_000
    assert counting.most <= 32
