"""Runs and owners as rows, made through the store's own doors: for tests of what time and other processes do."""

from __future__ import annotations

import asyncio
import secrets
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from services.core.domain.run import Status
from services.core.engine.starts import insert_starts
from services.core.store.batch import prepared
from services.core.store.commit_item import CommitItem, EndRow, StartRow, WaitRow
from services.core.store.database import Database

DAY_MS = 86_400_000


class Recorder:
    """A publisher that remembers what it was told. `told` is set at each call."""

    def __init__(self) -> None:
        self.ready: list[uuid.UUID] = []
        self.cancelled: dict[int, list[uuid.UUID]] = {}
        self.mailed: dict[int, list[uuid.UUID]] = {}
        self.pooled: list[int] = []
        self.timers: list[tuple[uuid.UUID, list[int]]] = []
        self.told = asyncio.Event()

    def publish_ready(self, run_ids: Sequence[uuid.UUID], traceparent: str) -> None:
        self.ready.extend(run_ids)
        self.told.set()

    def publish_cancel(self, owner: int, run_ids: Sequence[uuid.UUID]) -> None:
        self.cancelled.setdefault(owner, []).extend(run_ids)
        self.told.set()

    def publish_mail(self, owner: int, run_ids: Sequence[uuid.UUID]) -> None:
        self.mailed.setdefault(owner, []).extend(run_ids)
        self.told.set()

    def publish_pool(self, workflows: Sequence[int]) -> None:
        self.pooled.extend(workflows)
        self.told.set()

    def publish_timers(self, run_id: uuid.UUID, due_ms: Sequence[int]) -> None:
        self.timers.append((run_id, list(due_ms)))
        self.told.set()

    def publish_defs(self, tenant: int) -> None:
        self.told.set()


class LiveRows:
    """Runs of one tenant. Instants are given as milliseconds from now; negative ones have passed.

    A run that is given gates is of a workflow with limits as wide as can be, one or two.
    """

    GATED = 1

    def __init__(self, database: Database, tenant: int) -> None:
        self.database = database
        self.tenant = tenant

    async def start(self, count: int = 1, **values: Any) -> list[uuid.UUID]:
        """Started runs; `values` are columns of StartRow."""
        rows = [self.start_row(**values) for _ in range(count)]
        async with self.database.connection() as connection:
            await insert_starts(connection, rows, [])
            if rows[0].gv == self.GATED:
                await connection.execute(
                    "insert into rt.gate_rule (wf, tenant, keys, turn, a, b) values ($1, $2, 0, $3, 10000, $4) "
                    "on conflict do nothing",
                    *(rows[0].wf, self.tenant, self.GATED, None if rows[0].gb is None else 10_000),
                )
        return [row.id for row in rows]

    async def start_one(self, **values: Any) -> uuid.UUID:
        """One started run."""
        (run,) = await self.start(1, **values)
        return run

    async def owner(self, *, kind: str = "executor", silent_ms: int = 0, dead: bool = False) -> int:
        """A registered owner whose last beat was `silent_ms` ago."""
        owner = secrets.randbits(63)
        async with self.database.connection() as connection:
            await connection.execute(
                "insert into rt.owner (id, kind, node, beat_at, dead) "
                "values ($1, $2, 'test', rt.now() - $3::int * interval '1 ms', $4)",
                owner,
                kind,
                silent_ms,
                dead,
            )
        return owner

    async def claim(self, owner: int, runs: Sequence[uuid.UUID]) -> list[asyncpg.Record]:
        """Take the lease of queued runs."""
        async with self.database.connection() as connection:
            return list(await connection.fetch("select * from rt.claim_hinted_v1($1, $2, 10000)", owner, list(runs)))

    async def held(self, owner: int, **values: Any) -> uuid.UUID:
        """A run that `owner` holds; a dead owner took it when it was alive."""
        run = await self.start_one(**values)
        was_dead = await self.value("update rt.owner set dead = false where id = $1 and dead returning true", owner)
        assert await self.claim(owner, [run])
        if was_dead:
            await self.value("update rt.owner set dead = true where id = $1 returning true", owner)
        return run

    async def commit(self, owner: int, run: uuid.UUID, **item: Any) -> asyncpg.Record:
        """What the holder decided; fences are read from the row unless given."""
        async with self.database.connection() as connection:
            row = await connection.fetchrow("select * from rt.live where id = $1", run)
            fence = {"epoch": row["epoch"], "rev": row["rev"], "mail": row["mail"]} if row else {}
            items = [CommitItem(**{"run": run, "tenant": self.tenant, "keep": False, "st": "q", **fence, **item})]
            statement, arguments = prepared(owner, items, now_s=0.0)
            answer = await connection.fetchrow(statement, *arguments)
        assert answer is not None
        return answer

    async def rest(
        self, st: str, waits: Sequence[WaitRow] = (), run: uuid.UUID | None = None, **start: Any
    ) -> uuid.UUID:
        """A run that was held and rests in `st` with these waits."""
        owner = await self.owner()  # a scheduler that runs beside would rescue the run from an unknown one
        if run is None:
            run = await self.start_one(**start)
        await self.claim(owner, [run])
        rows = tuple(wait._replace(run=run) for wait in waits)
        answer = await self.commit(owner, run, st=st, wait_rows=rows, steps=len(rows))
        assert answer["result"] == "d"
        await self.rows("delete from rt.owner where id = $1", owner)
        return run

    async def asleep(self, delay_ms: int, **start: Any) -> uuid.UUID:
        """A run that sleeps for `delay_ms`."""
        return await self.rest("s", [self.wait("s", delay_ms=delay_ms)], **start)

    async def end(
        self, owner: int, run: uuid.UUID, status: str, output: str | None = None, error: str | None = None
    ) -> None:
        """The holder ends the run."""
        answer = await self.commit(owner, run, end_row=EndRow(run, status, output, error))
        assert answer["result"] == "d"

    def wait(self, kind: str, **values: Any) -> WaitRow:
        """An open wait; its step id is its kind unless given."""
        event = {"event": "e", "name_h": 1, "path_h": 0, "val_h": 0} if kind in ("e", "x") else {}
        named = {"sid": None if kind in ("d", "x", "p") else kind, "name": kind}
        row: dict[str, Any] = dict.fromkeys(WaitRow._fields) | {
            "run": uuid.UUID(int=0),
            "tenant": self.tenant,
            "id": uuid.uuid4(),
            "kind": kind,
            "seq": 1,
            "arming": False,
            **named,
            **event,
            **values,
        }
        return WaitRow(**row)

    async def live(self, run: uuid.UUID) -> asyncpg.Record | None:
        """The run's live row."""
        return await self.row("select *, st::text as st from rt.live where id = $1", run)

    async def status(self, run: uuid.UUID) -> Status:
        """The run's status, active or ended."""
        value = await self.value(
            "select coalesce((select st::text from rt.live where id = $1), "
            "(select status from rt.ends where run = $1))",
            run,
        )
        return Status(value)

    async def rows(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Any rows."""
        async with self.database.connection() as connection:
            return list(await connection.fetch(sql, *args))

    async def row(self, sql: str, *args: Any) -> asyncpg.Record | None:
        """Any row."""
        rows = await self.rows(sql, *args)
        return rows[0] if rows else None

    async def value(self, sql: str, *args: Any) -> Any:
        """Any value."""
        async with self.database.connection() as connection:
            return await connection.fetchval(sql, *args)

    @asynccontextmanager
    async def locked(self, *runs: uuid.UUID) -> AsyncIterator[None]:
        """Hold the row locks of `runs`, as another process's transaction would."""
        async with self.database.transaction() as connection:
            await connection.fetch("select from rt.live where id = any ($1) order by id for update", list(runs))
            yield

    def start_row(self, **values: Any) -> StartRow:
        """A run to start; `values` are columns."""
        row: dict[str, Any] = {
            "id": uuid.uuid4(),
            "tenant": self.tenant,
            "wf": 1 if values.get("ga") is None else 2,
            "project": 1,
            "source": "api",
            "event": uuid.uuid4(),
            "event_name": "test",
            "event_ts": None,
            "event_data": "{}",
            "idem": None,
            "test": False,
            "parent": None,
            "replay_of": None,
            "tags": "[]",
            "version": "",
            "trace": None,
            "max_att": 4,
            "timeout_ms": 30 * DAY_MS,
            "delay_ms": None,
            "at_ms": None,
            "prio": 0,
            "gv": 0 if values.get("ga") is None else self.GATED,
            "ga": None,
            "gb": None,
        }
        return StartRow(**{**row, **values})


@pytest.fixture
def rows(database: Database, tenant: int) -> LiveRows:
    """Rows of the default tenant."""
    return LiveRows(database, tenant)


@pytest.fixture
def recorder() -> Recorder:
    """Remembers the hints."""
    return Recorder()
