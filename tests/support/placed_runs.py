"""Runs in every status that the schema allows, to hold a door of the store against the state machine."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg

from services.core.domain.cause import Cause
from services.core.domain.run import TERMINAL, RunView, Status
from services.core.domain.transition import TABLE, IllegalTransition, decide
from tests.support.live_rows import LiveRows

MAX_ATTEMPTS = 4
GATE = 77

_RESTS_IN = {Status.DELAYED: "d", Status.SLEEPING: "s", Status.WAITING: "e", Status.PARKED: "p"}
_HOLDS_SLOT = frozenset({Status.QUEUED, Status.RUNNING, Status.PARKED})


@dataclass(frozen=True)
class Placed:
    """A run in a status. `gated`: it belongs to a gate; in some statuses it then has the slot."""

    run: uuid.UUID
    status: Status
    gated: bool
    failures: int = 0
    streamed: bool = False

    @property
    def lines_up(self) -> bool:
        """Whether it would have to line up for a slot."""
        return self.gated and self.status not in _HOLDS_SLOT

    def view(self) -> RunView:
        return RunView(
            status=self.status,
            max_attempts=MAX_ATTEMPTS,
            function_failures=self.failures,
            gated=self.lines_up,
            streamed=self.streamed,
        )

    def leads_to(self, cause: Cause) -> Status | None:
        """Where the state machine leads; None: nowhere."""
        try:
            return decide(self.view(), cause, 0).status
        except IllegalTransition:
            return None


async def place_all(rows: LiveRows, *, failures: int = 0) -> list[Placed]:
    """Runs in every status that a run can have, with and without a gate."""
    placed = []
    for status in Status:
        for gated in (False, True):
            if status is Status.BLOCKED and not gated:
                continue
            placed.append(await place(rows, Placed(uuid.uuid4(), status, gated, failures)))
    return placed


async def place(rows: LiveRows, wanted: Placed) -> Placed:
    """Bring a run into the status, with what the schema demands of a row in it."""
    await rows.start_one(id=wanted.run, max_att=MAX_ATTEMPTS, ga=GATE if wanted.gated else None)
    ended = wanted.status in TERMINAL
    st = "q" if ended else wanted.status.value
    owner = secrets.randbits(63) if st == "r" else None
    await rows.value(
        'update rt.live set st = $2::text::"char", owner = $3, fn_att = $4, epoch = 5, slot = $5, '
        "qk = case when $2 in ('q', 'b') then rt.now() end where id = $1",
        wanted.run,
        st,
        owner,
        wanted.failures,
        wanted.gated and (ended or wanted.status in _HOLDS_SLOT),
    )
    if ended:
        await rows.value("select rt.finish_v1($1, $2, $3, $3, true)", [wanted.run], [wanted.status.value], [None])
    return wanted


async def open_waits(rows: LiveRows, placed: Sequence[Placed], kind: str, delay_ms: int) -> dict[uuid.UUID, uuid.UUID]:
    """A wait for each active run: of the kind it rests in, else (a step beside others) of `kind`. Wait by run."""
    waits = {}
    for one in placed:
        row = rows.wait(_RESTS_IN.get(one.status, kind), run=one.run, delay_ms=delay_ms)
        async with rows.database.connection() as connection:
            await connection.execute(
                "insert into rt.wait (id, run, tenant, kind, sid, name, event, name_h, path_h, val_h, due_at) "
                'select $1, r.id, $3, $4::text::"char", $5, $6, $7, $8, $9, $10, rt.now() + $11 * interval \'1 ms\' '
                "from rt.live r where r.id = $2",
                row.id, row.run, row.tenant, row.kind, row.sid, row.name, row.event, row.name_h, row.path_h, row.val_h,
                float(delay_ms),
            )  # fmt: skip
        waits[one.run] = row.id
    return waits


async def compare(
    rows: LiveRows, placed: Sequence[Placed], cause: Cause, door: Callable[[], Awaitable[object]]
) -> None:
    """Call the door and hold every run against the state machine."""
    before = {one.run: await snapshot(rows, one.run) for one in placed}
    await door()
    for one in placed:
        leads_to = one.leads_to(cause)
        found = await rows.status(one.run)
        label = f"{type(cause).__name__} of {one}"
        assert found is (leads_to or one.status), label
        if leads_to is None:
            assert await snapshot(rows, one.run) == before[one.run], label
        else:
            assert found in TABLE[type(cause)][one.status], label


async def snapshot(rows: LiveRows, run: uuid.UUID) -> tuple[object, ...]:
    live = await rows.row("select * from rt.live where id = $1", run)
    end = await rows.row("select * from rt.ends where run = $1", run)
    return tuple(live or ()), tuple(end or ())


async def fences(rows: LiveRows, run: uuid.UUID) -> asyncpg.Record:
    row = await rows.row(
        "select epoch, rev, mail from rt.live where id = $1 "
        "union all select epoch, rev, null from rt.ends where run = $1",
        run,
    )
    assert row is not None
    return row
