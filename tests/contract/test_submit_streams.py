"""Starts and events between gateway and ingest: many a message, and what becomes of them when a replica dies, freezes,
drains, or is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from runr.workflows.v1 import event_service_pb2, resources_pb2, run_service_pb2

from services.core.domain.errors import DomainError, PermissionDenied, Unauthenticated, Unavailable
from services.core.rpc.call_context import caller
from services.core.rpc.server import RpcServer
from services.core.runtime.clock import SystemClock
from services.core.runtime.health import Health
from services.core.runtime.parse import Address
from services.gateway.backends import Backends, Credentials
from services.gateway.submit import lane, submitter
from services.gateway.submit.item import BIG_BYTES
from tests.support.grpc_backend import ADMIN, LOOPBACK, VIEWER, rpc_server, serving
from tests.support.waiting import until

START, SEND = "/runr.workflows.v1.RunService/StartRun", "/runr.workflows.v1.EventService/SendEvents"
Requests = AsyncIterator[run_service_pb2.SubmitStartsRequest]


class Replica:
    """An ingest of which a test says when and whether it answers. `seen` are the items that came, in order."""

    def __init__(self, address: Address = LOOPBACK) -> None:
        self.seen: list[Any] = []
        self.messages = 0
        self.answering = asyncio.Event()
        self.answering.set()
        self.silent = asyncio.Event()
        self.came = asyncio.Condition()
        self.server: RpcServer = rpc_server({"run.SubmitStarts": self.submit}, address=address)

    @property
    def address(self) -> Address:
        return self.server.address

    async def submit(self, requests: Requests, context: Any) -> AsyncIterator[run_service_pb2.SubmitStartsResponse]:
        now_ms = SystemClock().unix_ms()
        yield run_service_pb2.SubmitStartsResponse(now_ms=now_ms)
        async for message in requests:
            async with self.came:
                self.messages += 1
                self.seen += message.items
                self.came.notify_all()
            if self.silent.is_set():
                await asyncio.Event().wait()
            while not self.answering.is_set():
                yield run_service_pb2.SubmitStartsResponse(now_ms=now_ms)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.answering.wait(), 0.1)
            answer = run_service_pb2.SubmitStartsResponse(now_ms=now_ms)
            for item in message.items:
                answer.items.add(number=item.number).response.run.id = item.id.hex()
            yield answer

    async def has(self, count: int) -> None:
        async with asyncio.timeout(10), self.came:
            await self.came.wait_for(lambda: len(self.seen) >= count)


@asynccontextmanager
async def backends_of(*addresses: Address) -> AsyncIterator[Backends]:
    async def resolve(_: Address) -> set[Address]:
        return set(addresses)

    found = Backends(dict.fromkeys(("ingest", "scheduler", "executor"), LOOPBACK), Health(), resolve=resolve)
    async with serving(found):
        yield found


def start(backends: Backends, *, token: str = ADMIN, data: bytes = b"", timeout_s: float = 20.0) -> asyncio.Task[Any]:
    """A start on its way."""
    request = run_service_pb2.StartRunRequest(project="p", workflow="w", data=data)
    credentials = Credentials(token, None, None)
    return asyncio.create_task(backends.call(START, request, credentials=credentials, timeout_s=timeout_s))


async def refusal(kind: type[DomainError], asking: Awaitable[Any]) -> DomainError:
    with pytest.raises(kind) as caught:
        await asking
    return caught.value


async def started(request: Any, context: Any) -> run_service_pb2.StartRunResponse:
    return run_service_pb2.StartRunResponse(run=resources_pb2.Run(id=f"of tenant {caller().tenant}"))


async def test_many_requests_are_few_messages_and_each_has_its_own_answer() -> None:
    replica = Replica()
    async with serving(replica.server), backends_of(replica.address) as backends:
        await start(backends)
        replica.messages = 0
        answers = await asyncio.gather(*(start(backends) for _ in range(500)))
        assert len({answer.run.id for answer in answers}) == 500
        assert {answer.run.id for answer in answers} == {item.id.hex() for item in replica.seen[1:]}
        assert replica.messages < 100
        times = [int.from_bytes(item.id[:6], "big") for item in replica.seen]
        assert times == sorted(times)


async def test_each_item_is_its_own_callers() -> None:
    server = rpc_server({"run.StartRun": started})
    async with serving(server), backends_of(server.address) as backends:
        good, viewer, stranger = start(backends), start(backends, token=VIEWER), start(backends, token="nobody-0123456")
        credentials = Credentials(ADMIN, "acme", None)
        other = backends.call(START, run_service_pb2.StartRunRequest(), credentials=credentials, timeout_s=10)
        assert (await good).run.id == "of tenant 1"
        assert (await other).run.id == "of tenant 2"
        await refusal(PermissionDenied, viewer)
        await refusal(Unauthenticated, stranger)


async def test_what_a_dead_replica_had_is_asked_of_another_under_the_same_ids() -> None:
    first, second = Replica(), Replica()
    first.answering.clear()
    async with serving(second.server), serving(first.server), backends_of(first.address) as backends:
        waiting = [start(backends) for _ in range(20)]
        await first.has(20)
        await meet(backends, first.address, second.address)
        await first.server.stop()
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*waiting)
    assert {item.id for item in second.seen} == {item.id for item in first.seen}
    assert all(item.again for item in second.seen)
    assert not any(item.again for item in first.seen)
    assert {answer.run.id for answer in answers} == {item.id.hex() for item in first.seen}


async def meet(backends: Backends, *addresses: Address) -> None:
    """The name of ingest leads to these now, and all can be reached."""
    starts = backends._submitters[START]
    starts._meet(set(addresses))
    await until(lambda: all(each.is_up for each, _ in starts._lanes.values()))


async def broken_off(backends: Backends) -> None:
    """It is noticed that the streams to ingest are over."""
    await until(lambda: not any(each.is_up for each, _ in backends._submitters[START]._lanes.values()))


async def test_what_the_only_replica_had_is_asked_of_it_again_when_it_is_back() -> None:
    first = Replica()
    first.answering.clear()
    async with serving(first.server), backends_of(first.address) as backends:
        waiting = [start(backends) for _ in range(5)]
        await first.has(5)
        await first.server.stop()
        await broken_off(backends)
        assert not any(each.done() for each in waiting), "nobody knows yet what became of them"
        second = Replica(first.address)
        async with serving(second.server), asyncio.timeout(10):
            answers = await asyncio.gather(*waiting)
    assert {answer.run.id for answer in answers} == {item.id.hex() for item in first.seen}
    assert {(item.id, item.again) for item in second.seen} == {(item.id, True) for item in first.seen}


async def test_nobody_there_is_told_soon_and_says_that_nothing_was_sent() -> None:
    replica = Replica()
    async with serving(replica.server):
        address = replica.address
    async with backends_of(address) as backends:
        began = time.monotonic()
        error = await refusal(Unavailable, start(backends))
    assert error.message == "ingest cannot be reached; try again"
    assert time.monotonic() - began < 5


async def test_an_unknown_fate_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter, "_UNKNOWN_S", 0.2)
    replica = Replica()
    replica.answering.clear()
    async with serving(replica.server), backends_of(replica.address) as backends:
        waiting = start(backends)
        await replica.has(1)
        await replica.server.stop()
        error = await refusal(Unavailable, waiting)
    assert error.message == "ingest ended the call; whether it was carried out is not known"


async def test_a_replica_that_says_nothing_is_left_and_another_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "SILENCE_S", 0.5)
    frozen, living = Replica(), Replica()
    frozen.silent.set()
    async with serving(frozen.server), serving(living.server), backends_of(frozen.address) as backends:
        waiting = [start(backends) for _ in range(10)]
        await frozen.has(1)
        await meet(backends, frozen.address, living.address)
        async with asyncio.timeout(10):
            answers = await asyncio.gather(*waiting)
    assert {answer.run.id for answer in answers} == {item.id.hex() for item in living.seen}


async def test_an_item_that_is_not_answered_in_time_ends_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter, "_SWEEP_S", 0.05)
    never, stuck = asyncio.Event(), asyncio.Event()

    async def sometimes(request: Any, context: Any) -> run_service_pb2.StartRunResponse:
        if request.data:
            stuck.set()
            await never.wait()
        return run_service_pb2.StartRunResponse()

    server = rpc_server({"run.StartRun": sometimes})
    async with serving(server), backends_of(server.address) as backends:
        waiting = start(backends, data=b"{}", timeout_s=0.5)
        await stuck.wait()
        await asyncio.gather(*(start(backends) for _ in range(50)))
        error = await refusal(Unavailable, waiting)
    assert error.message == "ingest did not answer in time; whether it was carried out is not known"


async def test_two_replicas_share_the_work_and_one_that_drains_loses_nothing() -> None:
    counts = {"first": 0, "second": 0}

    def counting(name: str) -> Callable[[Any, Any], Awaitable[run_service_pb2.StartRunResponse]]:
        async def count(request: Any, context: Any) -> run_service_pb2.StartRunResponse:
            counts[name] += 1
            await asyncio.sleep(0.01)
            return run_service_pb2.StartRunResponse()

        return count

    first, second = (rpc_server({"run.StartRun": counting(name)}, grace_s=5.0) for name in counts)
    async with serving(first), serving(second), backends_of(first.address, second.address) as backends:
        await asyncio.gather(*(start(backends) for _ in range(10)))
        async with asyncio.timeout(10):
            while not all(counts.values()):
                await asyncio.gather(*(start(backends) for _ in range(40)))
        before = counts["first"]
        load = asyncio.gather(*(start(backends) for _ in range(400)))
        await until(lambda: counts["first"] > before)
        await first.drain()
        await load
        done = counts["first"]
        await asyncio.gather(*(start(backends) for _ in range(40)))
        assert counts["first"] == done


async def test_a_big_request_is_a_call_of_its_own() -> None:
    streamed, calls = Replica(), []

    async def alone(request: Any, context: Any) -> run_service_pb2.StartRunResponse:
        calls.append(len(request.data))
        return run_service_pb2.StartRunResponse()

    server = rpc_server({"run.StartRun": alone, "run.SubmitStarts": streamed.submit})
    async with serving(server):
        peers = dict.fromkeys(("ingest", "scheduler", "executor"), server.address)
        async with serving(Backends(peers, Health())) as backends:
            await asyncio.gather(start(backends, data=b"x" * BIG_BYTES), start(backends, data=b"x" * 1_000))
    assert (calls, [len(item.request.data) for item in streamed.seen]) == ([BIG_BYTES], [1_000])


async def test_events_have_ids_in_a_row_for_each_request() -> None:
    seen: list[Any] = []

    async def submit(requests: Any, context: Any) -> AsyncIterator[Any]:
        yield event_service_pb2.SubmitEventsResponse(now_ms=SystemClock().unix_ms())
        async for message in requests:
            seen.extend(message.items)
            answer = event_service_pb2.SubmitEventsResponse(now_ms=SystemClock().unix_ms())
            for item in message.items:
                answer.items.add(number=item.number).response.results.add(name=item.request.events[0].name)
            yield answer

    server = rpc_server({"event.SubmitEvents": submit})
    async with serving(server), backends_of(server.address) as backends:
        requests = [
            event_service_pb2.SendEventsRequest(events=[event_service_pb2.NewEvent(name=f"e{n}")] * 100)
            for n in range(20)
        ]
        credentials = Credentials(ADMIN, None, None)
        answers = await asyncio.gather(
            *(backends.call(SEND, each, credentials=credentials, timeout_s=10) for each in requests)
        )
    assert [answer.results[0].name for answer in answers] == [f"e{n}" for n in range(20)]
    firsts = sorted(int.from_bytes(item.id, "big") for item in seen)
    assert all(later - earlier >= 100 for earlier, later in itertools.pairwise(firsts))


async def test_c21_ids_are_stamped_by_the_time_that_ingest_tells() -> None:
    ahead_ms = 3_600_000

    async def submit(requests: Requests, context: Any) -> AsyncIterator[run_service_pb2.SubmitStartsResponse]:
        yield run_service_pb2.SubmitStartsResponse(now_ms=SystemClock().unix_ms() + ahead_ms)
        async for message in requests:
            answer = run_service_pb2.SubmitStartsResponse(now_ms=SystemClock().unix_ms() + ahead_ms)
            for item in message.items:
                answer.items.add(number=item.number).response.run.id = item.id.hex()
            yield answer

    async def tell(requests: Requests, context: Any) -> AsyncIterator[event_service_pb2.SubmitEventsResponse]:
        yield event_service_pb2.SubmitEventsResponse(now_ms=SystemClock().unix_ms() + ahead_ms)
        async for _ in requests:
            pass

    server = rpc_server({"run.SubmitStarts": submit, "event.SubmitEvents": tell})
    async with serving(server), backends_of(server.address) as backends:
        await start(backends)  # until the first answer nobody has told the time
        id = (await start(backends)).run.id
    assert abs(int(id[:12], 16) - SystemClock().unix_ms() - ahead_ms) < 60_000
