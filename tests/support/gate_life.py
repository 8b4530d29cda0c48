"""Runs of a workflow whose concurrency limits are edited: what may happen to them, and what must hold all the time."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from services.core.domain.errors import Conflict
from services.core.domain.op import Op, RunCompleted, Sleep, StepCompleted, StepFailed
from services.core.domain.op import OpError as Error
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.gates import Gates
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.regate import Regater
from services.core.engine.retry_run import RunRetrier
from services.core.store.database import Database
from services.executor.lease import Lease
from services.scheduler.duties.gates import SweepGates
from tests.support import invariants
from tests.support.hand import Hand, playing

Limit = tuple[int, str | None]
"""A number, and the field of the trigger's data that is the key."""

Data = dict[str, int]

_FAR = 4_102_444_800_000


class Holder(NamedTuple):
    """A run that is leased, or was let through by the limits of now and is about to be."""

    run: UUID
    data: tuple[tuple[str, int], ...]

    def value(self, key: str | None) -> int | None:
        """Of the field that is the key."""
        return dict(self.data).get(key or "")


class GateLife:
    """One workflow in one tenant. Every operation checks, when it is done, that no limit was passed by it."""

    def __init__(self, hand: Hand) -> None:
        hints = Hints(NullPublisher())
        self._hand = hand
        self._database = hand.database
        self._gates = Gates(hand.database, hints)
        self._regater = Regater(hand.database, DefinitionsCache(None), hints)
        self._sweep = SweepGates(self._gates, self._regater)
        self._retrier = RunRetrier(hand.database, DefinitionsCache(None), hints)
        self._limits: Sequence[Limit] = ()
        self._steps = 0
        self._data: dict[UUID, Data] = {}
        self._held: dict[UUID, Lease] = {}
        self._before: set[Holder] = set()

    async def declare(self, limits: Sequence[Limit]) -> None:
        """Edit the limits."""
        concurrency = [
            {"limit": number} | ({} if key is None else {"key": f"event.data.{key}"}) for number, key in limits
        ]
        await self._hand.declare({"name": "work", "concurrency": concurrency, "retries": 20})
        self._limits = limits
        await self._check()

    async def start(self, data: Data) -> None:
        """Start a run."""
        self._data[await self._hand.start("work", json.dumps(data))] = data
        await self._check()

    async def claim(self, place: int) -> None:
        """An executor takes a queued run; one whose gates are none of now is not its to invoke."""
        queued = await self._runs("st = 'q'")
        if queued:
            lease = await self._hand.hold(queued[place % len(queued)])
            if lease is not None:
                assert not lease.outdated, "nothing is edited while it is claimed"
                self._held[lease.run] = lease
        await self._check()

    async def answer(self, place: int, op: str, *, told: bool) -> None:
        """The function of a leased run answers; `told`: what follows the commit is done, too."""
        held = sorted(self._held)
        if not held:
            return
        run = held[place % len(held)]
        await self._hand.answer(run, self._op(op))
        live = await self._row(run)
        if live is None or live["st"] != "r":
            del self._held[run]
        if told and (live is None or live["st"] != "r"):
            await self._gates.grant(await self._pairs())
        await self._check()

    async def give_back(self, place: int) -> None:
        """The executor drains, or sees that the limits were edited."""
        held = sorted(self._held)
        if held:
            lease = self._held.pop(held[place % len(held)])
            await self._hand.let_go(lease)
            await self._regater.move(lease.tenant, lease.entry.id, [lease.run])
        await self._check()

    async def wake(self, place: int) -> None:
        """A run that sleeps, or is in its backoff, is due."""
        resting = await self._runs("st in ('s', 'd')")
        if resting:
            run = resting[place % len(resting)]
            await self._hand.fire(run)
            live = await self._row(run)
            await self._gates.grant([(live["ga"], live["gb"])])
        await self._check()

    async def cancel(self, place: int) -> None:
        """Somebody cancels a run."""
        active = await self._runs("true")
        if active:
            await self._hand.cancel(active[place % len(active)])
            self._hand.forget(active[place % len(active)])
            self._held.pop(active[place % len(active)], None)
        await self._check()

    async def retry(self, place: int) -> None:
        """Somebody retries a run that has ended."""
        ended = sorted(set(self._data) - set(await self._runs("true")))
        if ended:
            with contextlib.suppress(Conflict):
                await self._retrier.retry(self._hand.tenant, ended[place % len(ended)])
        await self._check()

    async def die(self) -> None:
        """The executor is gone; its runs go back to the queue with their slots."""
        await self._execute("select * from rt.rescue_v1(1000)")
        for run in self._held:
            self._hand.forget(run)
        self._held.clear()
        await self._check()

    async def sweep(self) -> None:
        """A pass of the scheduler."""
        await self._sweep.run_once()
        await self._check()

    async def settle(self, database_url: str) -> None:
        """From now on nobody edits, and everybody does what is theirs: every run must come to its end."""
        for _ in range(20 + 2 * len(self._data)):
            if not await self._runs("true"):
                break
            await self.sweep()
            for _ in await self._runs("st in ('s', 'd')"):
                await self.wake(0)
            for _ in await self._runs("st = 'q'"):
                await self.claim(0)
            while self._held:
                await self.answer(0, "complete", told=False)
        left = await self._rows("select id, st::text as st, gv, ga, gb, line, slot from rt.live")
        assert not left, f"what waits for ever: {[dict(row) for row in left]}"
        await invariants.check(database_url)

    def _op(self, op: str) -> Op:
        self._steps += 1
        id = f"s{self._steps}"
        match op:
            case "step":
                return StepCompleted(id=id, name=id, output="1")
            case "fail":
                return StepFailed(id=id, name=id, error=Error("E", "no"))
            case "sleep":
                return Sleep(id=id, name=id, until_ms=_FAR)
        return RunCompleted(output="1")

    async def _check(self) -> None:
        """No limit of now is passed by what has just happened: where more runs are than it says, none came."""
        rows = await self._rows(
            """select l.id from rt.live l left join rt.gate_rule g on g.wf = l.wf
               where l.st = 'r' or (l.slot and l.gv = g.version)"""
        )
        now = {Holder(row["id"], tuple(sorted(self._data[row["id"]].items()))) for row in rows}
        for number, key in self._limits:
            counts = Counter(holder.value(key) for holder in now)
            for value in {holder.value(key) for holder in now - self._before}:
                assert counts[value] <= number, (
                    f"{counts[value]} runs, and one has just come, of {number} of {key}={value}"
                )
        self._before = now

    async def _pairs(self) -> list[tuple[int | None, int | None]]:
        rows = await self._rows("select distinct ga, gb from rt.live where ga is not null")
        return [(row["ga"], row["gb"]) for row in rows]

    async def _runs(self, condition: str) -> list[UUID]:
        rows = await self._rows(f"select id from rt.live where {condition} order by id")
        return [UUID(int=row["id"].int) for row in rows]

    async def _row(self, run: UUID) -> Any:
        rows = await self._rows("select st::text as st, ga, gb from rt.live where id = $1", run)
        return rows[0] if rows else None

    async def _rows(self, query: str, *args: Any) -> list[Any]:
        async with self._database.connection() as connection:
            return list(await connection.fetch(query, *args))

    async def _execute(self, statement: str) -> None:
        await self._rows(statement)


@contextlib.asynccontextmanager
async def gate_life(database: Database, tenant: int) -> AsyncIterator[GateLife]:
    """A workflow without limits yet."""
    async with playing(database, tenant) as hand:
        life = GateLife(hand)
        await life.declare(())
        yield life
