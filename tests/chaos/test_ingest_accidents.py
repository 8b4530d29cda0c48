"""Ingest is killed, frozen and drained under starts and events without keys: the gateway asks again, each is answered
once and happens once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.core.runtime.python_child import python_command
from services.core.store.database import Database
from tests.support import invariants
from tests.support.child import Child
from tests.support.engine import slow_commits
from tests.support.gateway_of_many import REPLICAS
from tests.support.locks import held_up
from tests.support.rest import Rest
from tests.support.stack import Servers, Stack
from tests.support.waiting import until

STARTS, EVENTS = 150, 30
DEFINITIONS = {"workflows": [{"name": "work", "triggers": [{"event": "placed"}]}]}


class PairStack(Stack):
    """Two replicas of ingest behind one gateway."""

    def __init__(self, servers: Servers) -> None:
        super().__init__(servers, replicas={"ingest": 2})
        self.commands = {"gateway": python_command("tests.support.gateway_of_many")}

    def _children(self) -> dict[str, Child]:
        self.own = {"gateway": {REPLICAS: ",".join(self.address(name) for name in self.names("ingest"))}}
        return super()._children()


class Load:
    """Starts and events on their way, none with a key of its own."""

    def __init__(self, rest: Rest, tenant: int, stack: Stack) -> None:
        self._rest = rest
        self._tenant = tenant
        self._stack = stack
        self._tasks: list[asyncio.Task[Any]] = []

    def send(self, starts: int = STARTS, events: int = EVENTS) -> None:
        """Begin to ask for so many more."""
        for n in range(starts):
            self._tasks.append(asyncio.create_task(self._rest.start("work", {"n": n})))
        for n in range(events):
            self._tasks.append(asyncio.create_task(self._rest.send("placed", {"n": n})))

    async def answered(self, count: int) -> None:
        """Wait until so many are."""
        await until(lambda: sum(task.done() for task in self._tasks) >= count)

    async def ended(self) -> list[str]:
        """The runs that they were answered, each another."""
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*self._tasks)
        runs = [answer if isinstance(answer, str) else answer["runs"][0] for answer in answers]
        assert len(set(runs)) == len(runs)
        return runs

    async def happened_once(self, runs: Sequence[str]) -> None:
        """Nothing is stored but what was answered."""
        events = sum(not isinstance(task.result(), str) for task in self._tasks)
        assert await self._stack.value(f"select count(*) from t_{self._tenant}.runs") == len(runs)
        assert await self._stack.value(f"select count(*) from t_{self._tenant}.events") == events


@asynccontextmanager
async def loading(stack: Stack) -> AsyncIterator[Load]:
    """A new tenant's load. What it has been answered is there, once, and the invariants hold."""
    async with stack.tenant() as rest:
        await rest.ok("PUT", "/projects/default/workflows", DEFINITIONS)
        tenant = await stack.value("select id from rt.tenant where slug = $1", rest.tenant)
        load = Load(rest, tenant, stack)
        yield load
        runs = await load.ended()
        await load.happened_once(runs)
        await invariants.check(stack.database_url, accepted=runs)


@pytest.fixture
async def theirs(stack: Stack) -> AsyncIterator[Database]:
    """The database of the stack, whose services all run."""
    await stack.revive()
    database = Database(stack.database_url, name="test", size=2)
    await database.open()
    yield database
    await database.close()


@pytest.mark.parametrize("table", ["runs", "events"])
async def test_killed_in_the_middle_of_a_commit_that_happens(stack: Stack, theirs: Database, table: str) -> None:
    async with loading(stack) as load:
        async with slow_commits(theirs, f"t_{load._tenant}.{table}") as stopped:
            load.send(starts=20, events=20)
            await stopped()
            await stack.kill("ingest")
        await stack.start("ingest")


async def test_killed_before_a_commit_that_happens_after_the_next_attempt_has_begun(
    stack: Stack, theirs: Database
) -> None:
    async with loading(stack) as load, theirs.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("lock table rt.live in access exclusive mode")
        load.send(starts=20, events=0)
        await held_up(connection, 1)
        await stack.kill("ingest")
        stack.children["ingest"].start()
        await stack.children["ingest"].ready()
        await held_up(connection, 2)
        await transaction.rollback()


async def test_two_replicas_and_one_is_killed_drained_and_frozen(servers: Servers) -> None:
    async with PairStack(servers) as stack:
        first, second = stack.children["ingest"], stack.children["ingest-2"]
        async with loading(stack) as load:
            load.send()
            await load.answered(40)
            await stack.kill("ingest")
        await stack.start("ingest")
        async with loading(stack) as load:
            load.send()
            await load.answered(40)
            second.kill(signal.SIGTERM)
            assert await second.ended() == 0
        await stack.start("ingest-2")
        async with loading(stack) as load:
            load.send()
            await load.answered(40)
            first.freeze()
            load.send(starts=20, events=0)
            await load.ended()
            first.thaw()  # what it still holds has been carried out by the other
            load.send(starts=40, events=0)
        assert stack.faults() == []


async def test_the_only_one_stands_still_and_nobody_waits_for_ever(stack: Stack) -> None:
    await stack.revive()
    async with stack.tenant() as rest:
        await rest.ok("PUT", "/projects/default/workflows", DEFINITIONS)
        ingest = stack.children["ingest"]
        ingest.freeze()
        path = "/projects/default/workflows/work/runs"
        asked = [asyncio.create_task(rest.call("POST", path, {})) for _ in range(5)]
        async with asyncio.timeout(40):
            replies = await asyncio.gather(*asked)
        ingest.thaw()
        assert {reply.status for reply in replies} == {503}
        assert {reply.headers["Retry-After"] for reply in replies} == {"1"}
        started = await rest.until(lambda: rest.call("POST", path, {}), lambda reply: reply.status == 201)
        await invariants.check(stack.database_url, accepted=[started.json["id"]])
