"""Dead owners: their runs move, counted as WorkerLost; living owners keep theirs, however slow they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from services.core.domain.run import Status
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.settings import LeaseSettings
from services.scheduler.duties.owners import KEEP_MS, ForgetOwners
from services.scheduler.duties.rescue import Rescue
from tests.support.live_rows import LiveRows, Recorder
from tests.support.turned_clock import TurnedClock
from tests.support.waiting import until

TTL = LeaseSettings(ttl_s=30.0, heartbeat_s=3.0)
SILENT_MS = 31_000


class Ends:
    """Counts the nudges to the duty of marks."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def rescue(rows: LiveRows, recorder: Recorder, ends: Ends) -> Rescue:
    return Rescue(rows.database, Hints(recorder), SystemClock(), TTL, ends, settle_s=0)


@asynccontextmanager
async def session_lock(dsn: str, owner: int) -> AsyncIterator[asyncpg.Connection]:
    """The database session of a living owner."""
    connection = await asyncpg.connect(dsn)
    try:
        assert await connection.fetchval("select pg_try_advisory_lock($1)", owner)
        yield connection
    finally:
        await connection.close()


async def test_the_run_of_a_silent_owner_moves_and_counts_as_worker_lost(
    rows: LiveRows, rescue: Rescue, recorder: Recorder, ends: Ends
) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    run = await rows.held(owner)
    held = await rows.live(run)
    assert held is not None
    assert await rescue.run_once() == {"buried": 1, "rescued": 1, "failed": 0, "parked": 0}
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["fn_att"], live["att"]) == ("q", None, 1, 1)
    assert (live["epoch"], live["rev"]) == (held["epoch"] + 1, held["rev"])
    attempt = await rows.row("select n, sid, k, error from rt.attempts where run = $1", run)
    assert attempt is not None
    assert (attempt["n"], attempt["sid"], attempt["k"]) == (0, None, 1)
    assert json.loads(attempt["error"])["name"] == "WorkerLost"
    assert recorder.ready == [run]
    assert ends.count == 0
    assert await rescue.run_once() == {"buried": 0, "rescued": 0, "failed": 0, "parked": 0}


async def test_what_the_dead_owner_still_commits_is_fenced(rows: LiveRows, rescue: Rescue) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    run = await rows.held(owner)
    held = await rows.live(run)
    assert held is not None
    await rescue.run_once()
    late = await rows.commit(owner, run, epoch=held["epoch"], rev=held["rev"], mail=0, st="s")
    assert late["result"] == "f"
    successor = await rows.owner()
    await rows.claim(successor, [run])
    late = await rows.commit(owner, run, epoch=held["epoch"], rev=held["rev"], mail=0, st="s")
    assert late["result"] == "f"
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"]) == ("r", successor)


async def test_the_last_attempt_fails_the_run(rows: LiveRows, rescue: Rescue, recorder: Recorder, ends: Ends) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    parent = await rows.start_one()
    run = await rows.held(owner, max_att=1, parent=parent)
    await rows.rest("w", [rows.wait("c", child=run)], run=parent)
    assert await rescue.run_once() == {"buried": 1, "rescued": 0, "failed": 1, "parked": 0}
    assert await rows.status(run) is Status.FAILED
    end = await rows.row("select error, epoch, att from rt.ends where run = $1", run)
    assert end is not None
    assert json.loads(end["error"])["name"] == "WorkerLost"
    assert end["att"] == 1
    assert recorder.ready == []
    assert ends.count == 1
    assert await rows.value("select body from rt.mark where kind = 'child_end' and target = $1", parent) == str(run)


async def test_c19_an_owner_whose_session_is_gone_is_dead_after_two_seconds(rows: LiveRows, rescue: Rescue) -> None:
    fresh = await rows.owner(silent_ms=1_000)
    gone = await rows.owner(silent_ms=2_500)
    kept, moved = await rows.held(fresh), await rows.held(gone)
    assert (await rescue.run_once())["buried"] == 1
    assert await rows.status(kept) is Status.RUNNING
    assert await rows.status(moved) is Status.QUEUED


async def test_after_a_start_of_the_server_only_who_has_beaten_since_is_judged(
    rows: LiveRows, recorder: Recorder, ends: Ends
) -> None:
    clock = TurnedClock()
    rescue = Rescue(rows.database, Hints(recorder), clock, TTL, ends, settle_s=360_000)
    waiting, gone = await rows.owner(silent_ms=3_000_000), await rows.owner(silent_ms=3_000_000)
    kept, moved = await rows.held(waiting), await rows.held(gone)
    assert (await rescue.run_once())["buried"] == 0
    await rows.value("select rt.beat_v1($1)", gone)
    assert (await rescue.run_once())["buried"] == 0
    clock.ahead_s += 2.0
    assert (await rescue.run_once())["buried"] == 1
    assert await rows.status(kept) is Status.RUNNING
    assert await rows.status(moved) is Status.QUEUED


async def test_a_living_owner_whose_session_was_cut_off_is_not_buried(
    rows: LiveRows, rescue: Rescue, postgres_url: str
) -> None:
    owner = await rows.owner(silent_ms=2_500)
    run = await rows.held(owner)
    judging = asyncio.create_task(rescue.run_once())

    async def is_judged() -> bool:
        return not await is_unlocked(rows, owner)

    await until(is_judged)
    await rows.value("select rt.beat_v1($1)", owner)
    assert (await judging)["buried"] == 0
    assert await rows.status(run) is Status.RUNNING


async def test_c19_a_slow_owner_with_a_living_session_is_not_buried_early(
    rows: LiveRows, rescue: Rescue, postgres_url: str
) -> None:
    owner = await rows.owner(silent_ms=20_000)
    run = await rows.held(owner)
    async with session_lock(postgres_url, owner):
        assert await rescue.run_once() == {"buried": 0, "rescued": 0, "failed": 0, "parked": 0}
        assert await rows.status(run) is Status.RUNNING
    await until(lambda: is_unlocked(rows, owner))
    assert await rescue.run_once() == {"buried": 1, "rescued": 1, "failed": 0, "parked": 0}


async def test_a_session_alone_keeps_nobody_alive_past_the_ttl(
    rows: LiveRows, rescue: Rescue, postgres_url: str
) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    run = await rows.held(owner)
    async with session_lock(postgres_url, owner):
        assert (await rescue.run_once())["buried"] == 1
    assert await rows.status(run) is Status.QUEUED


async def test_a_look_at_a_suspect_leaves_no_lock_behind(rows: LiveRows, rescue: Rescue, postgres_url: str) -> None:
    owner = await rows.owner(silent_ms=2_500)
    await rescue.run_once()
    async with session_lock(postgres_url, owner):
        pass


async def test_an_owner_that_beats_again_first_stays_alive(rows: LiveRows) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    seen = await rows.value("select beats from rt.owner where id = $1", owner)
    await rows.value("select rt.beat_v1($1)", owner)
    assert await rows.value("select rt.bury_v1($1, $2)", owner, seen) is None
    assert await rows.value("select rt.beat_v1($1)", owner)


async def test_the_buried_learn_it_from_their_next_beat(rows: LiveRows, rescue: Rescue) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    await rescue.run_once()
    assert await rows.value("select rt.beat_v1($1)", owner) is None


async def test_runs_of_owners_that_are_unknown_or_were_buried_by_others_are_found(
    rows: LiveRows, rescue: Rescue
) -> None:
    buried = await rows.owner(dead=True)
    runs = [await rows.held(12345), await rows.held(buried)]
    assert await rescue.run_once() == {"buried": 0, "rescued": 2, "failed": 0, "parked": 0}
    assert [await rows.status(run) for run in runs] == [Status.QUEUED, Status.QUEUED]


async def test_c17_a_rescued_run_keeps_its_slot(rows: LiveRows, rescue: Rescue) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    run = await rows.start_one(ga=7)
    await rows.value("update rt.live set st = 'q', slot = true where id = $1", run)
    await rows.claim(owner, [run])
    await rescue.run_once()
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["slot"]) == ("q", True)


async def test_two_schedulers_at_once_rescue_each_run_once(
    rows: LiveRows, rescue: Rescue, recorder: Recorder, ends: Ends
) -> None:
    owner = await rows.owner(silent_ms=SILENT_MS)
    runs = await rows.start(700)
    await rows.claim(owner, runs)
    other = Rescue(rows.database, Hints(recorder), SystemClock(), TTL, ends, settle_s=0)
    counts = await asyncio.gather(rescue.run_once(), other.run_once())
    rest = await rescue.run_once()
    assert sum(count["rescued"] for count in (*counts, rest)) == 700
    assert sorted(recorder.ready) == sorted(runs)
    assert await rows.value("select count(*) from rt.live where fn_att = 1 and att = 1 and st = 'q'") == 700
    assert await rows.value("select count(*) from rt.attempts") == 700


async def test_after_a_gap_of_its_own_it_first_lets_owners_beat(rows: LiveRows, recorder: Recorder, ends: Ends) -> None:
    clock = TurnedClock()
    rescue = Rescue(rows.database, Hints(recorder), clock, TTL, ends, settle_s=0.5)
    await rescue.run_once()
    owner = await rows.owner(silent_ms=SILENT_MS)
    run = await rows.held(owner)
    clock.ahead_s += 12.0  # the database, or this process, was away
    assert (await rescue.run_once())["buried"] == 0
    assert await rows.status(run) is Status.RUNNING
    clock.ahead_s += 1.0
    assert (await rescue.run_once())["buried"] == 1


async def test_a_server_that_has_just_started_condemns_nobody(rows: LiveRows, recorder: Recorder, ends: Ends) -> None:
    up_s = await rows.value("select extract(epoch from clock_timestamp() - pg_postmaster_start_time())::float8")
    settle_s = up_s + 60
    clock = TurnedClock()
    rescue = Rescue(rows.database, Hints(recorder), clock, TTL, ends, settle_s=settle_s)
    await rows.owner(silent_ms=SILENT_MS)
    while clock.ahead_s < settle_s - 30:
        assert (await rescue.run_once())["buried"] == 0
        clock.ahead_s += 4.0
    while clock.ahead_s < settle_s:
        await rescue.run_once()
        clock.ahead_s += 4.0
    assert (await rescue.run_once())["buried"] == 1


async def test_dead_owners_are_forgotten_after_an_hour_when_nothing_is_theirs(rows: LiveRows) -> None:
    forgotten = await rows.owner(dead=True, silent_ms=KEEP_MS + 1_000)
    recent = await rows.owner(dead=True, silent_ms=KEEP_MS - 60_000)
    holding = await rows.owner(dead=True, silent_ms=KEEP_MS + 1_000)
    alive = await rows.owner(silent_ms=KEEP_MS + 1_000)
    await rows.held(holding)
    assert await ForgetOwners(rows.database).run_once() == {"forgotten": 1}
    left = {row["id"] for row in await rows.rows("select id from rt.owner")}
    assert left == {recent, holding, alive}
    assert forgotten not in left


async def is_unlocked(rows: LiveRows, owner: int) -> bool:
    return bool(
        await rows.value(
            "select not exists (select from pg_locks where locktype = 'advisory' and objid = ($1 & 4294967295)::oid)",
            owner,
        )
    )


async def test_runs_of_the_dead_are_looked_for_at_first_and_when_there_are_any(rows: LiveRows, rescue: Rescue) -> None:
    dead = await rows.owner(dead=True)
    first = await rows.held(dead)
    await rescue.run_once()
    assert await rows.status(first) is Status.QUEUED
    second = await rows.held(await rows.owner(dead=True))
    await rescue.run_once()
    assert await rows.status(second) is Status.RUNNING
    rescue.wake()
    await asyncio.wait_for(rescue.idle(), 30)
    await rescue.run_once()
    assert await rows.status(second) is Status.QUEUED


async def test_a_scheduler_does_not_bury_itself(rows: LiveRows, recorder: Recorder, ends: Ends) -> None:
    own = await rows.owner(kind="scheduler", silent_ms=SILENT_MS)
    other = await rows.owner(kind="scheduler", silent_ms=SILENT_MS)
    rescue = Rescue(rows.database, Hints(recorder), SystemClock(), TTL, ends, settle_s=0, own=lambda: own)
    assert (await rescue.run_once())["buried"] == 1
    assert await rows.value("select array_agg(id) from rt.owner where dead") == [other]
