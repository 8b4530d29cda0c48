"""The lease of a process: its heartbeat, its lock, and how it learns that it is dead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from uuid import UUID, uuid4

import pytest

from services.core.runtime.clock import SystemClock
from services.core.runtime.settings import LeaseSettings
from services.core.store.database import Database
from services.core.store.queries import queries
from services.executor.arriving import Tenure
from services.executor.owner import Owner, OwnerLost
from tests.support.cuttable import cuttable
from tests.support.engine import PATIENT, HandClock, QuickClock, database, make_owner, postgres_url
from tests.support.live_rows import LiveRows, rows
from tests.support.locks import held_up
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

QUICK = LeaseSettings(ttl_s=3.0, heartbeat_s=0.1)


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[Owner]:
    made = make_owner(database, lease=QUICK)
    await made.register()
    yield made
    await made.leave()


def one_claim() -> Collection[object]:
    """A claim that is under way all the time."""
    return {"claim"}


async def beating(rows: LiveRows, owner: Owner, known: Collection[Tenure] = frozenset()) -> asyncio.Task[None]:
    """The owner beats, while a claim is under way; at least one beat has been made."""
    before = await rows.value("select beat_at from rt.owner where id = $1", owner.id)
    task = asyncio.create_task(owner.keep(lambda: known, one_claim, lambda _: None))

    async def beat() -> bool:
        return bool(await rows.value("select beat_at > $2 from rt.owner where id = $1", owner.id, before))

    await until(beat)
    return task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def session(rows: LiveRows, owner: Owner) -> int | None:
    """The server's process that holds the owner's lock. Sessions of earlier tests may be there as well."""
    pid: int | None = await rows.value(
        "select pid from pg_locks where locktype = 'advisory' and granted "
        "and (classid::bigint << 32 | objid::bigint) = $1",
        owner.id,
    )
    return pid


async def has_lock(rows: LiveRows, owner: Owner) -> bool:
    return await session(rows, owner) is not None


SESSIONS = "pg_stat_activity where application_name = 'runr-executor-owner' and datname = current_database()"


async def test_an_owner_is_a_row_and_a_lock_until_it_leaves(rows: LiveRows, database: Database) -> None:
    owner = make_owner(database)
    await owner.register()
    assert await rows.value("select kind from rt.owner where id = $1 and not dead", owner.id) == "executor"
    assert await has_lock(rows, owner)
    assert owner.may_invoke
    await owner.leave()
    assert await rows.value("select count(*) from rt.owner where id = $1", owner.id) == 0

    async def released() -> bool:
        return not await has_lock(rows, owner)

    await until(released)


async def test_an_owner_that_has_left_does_not_come_back_to_beat(rows: LiveRows, owner: Owner) -> None:
    task = await beating(rows, owner)
    await owner.leave()
    async with asyncio.timeout(10):
        await task  # which tells nobody that this owner is lost: it has left

    async def gone() -> bool:
        return bool(await rows.value(f"select count(*) = 0 from {SESSIONS}"))

    await until(gone)


async def test_no_two_lives_have_one_id(database: Database) -> None:
    assert len({make_owner(database).id for _ in range(100)}) == 100


async def test_c18_an_owner_that_was_buried_learns_it_with_its_next_beat(rows: LiveRows, owner: Owner) -> None:
    task = await beating(rows, owner)
    await rows.rows("update rt.owner set dead = true where id = $1 returning id", owner.id)
    async with asyncio.timeout(10):
        with pytest.raises(OwnerLost):
            await task


async def test_c18_an_owner_whose_row_is_gone_learns_it_too(rows: LiveRows, owner: Owner) -> None:
    task = await beating(rows, owner)
    await rows.rows("delete from rt.owner where id = $1 returning id", owner.id)
    async with asyncio.timeout(10):
        with pytest.raises(OwnerLost):
            await task


async def test_a_broken_connection_is_made_again_with_its_lock(rows: LiveRows, owner: Owner) -> None:
    task = await beating(rows, owner)
    for _ in range(3):
        await rows.rows(f"select pg_terminate_backend(pid) from {SESSIONS}")

        async def locked() -> bool:
            return await has_lock(rows, owner)

        await until(locked)
    await stop(task)
    task = await beating(rows, owner)
    await stop(task)
    assert owner.may_invoke


async def test_c20_an_owner_that_hears_nothing_fences_itself(database: Database, rows: LiveRows) -> None:
    clock = HandClock()
    owner = make_owner(database, lease=QUICK, clock=clock)
    await owner.register()
    clock.seconds += QUICK.ttl_s / 2 - 0.01
    assert owner.may_invoke
    clock.seconds += 0.01
    assert not owner.may_invoke, "half the ttl in silence: no new invocation"
    task = asyncio.create_task(owner.keep(frozenset, one_claim, lambda _: None))

    async def again() -> bool:
        return owner.may_invoke

    await until(again)
    clock.seconds += QUICK.ttl_s
    async with asyncio.timeout(10):
        with pytest.raises(OwnerLost):
            await task
    assert not owner.may_invoke


async def test_c20_an_owner_that_is_cut_off_gives_up_within_its_ttl(database: Database, rows: LiveRows) -> None:
    lease = LeaseSettings(ttl_s=1.5, heartbeat_s=0.1)
    async with cuttable(database.dsn) as (dsn, _):
        owner = Owner(dsn, node="test", settings=lease, clock=SystemClock())
        await owner.register()
    began = asyncio.get_running_loop().time()
    with pytest.raises(OwnerLost):
        await owner.keep(frozenset, one_claim, lambda _: None)
    assert asyncio.get_running_loop().time() - began < 5.0


async def test_a_slow_server_costs_no_lock(rows: LiveRows, owner: Owner) -> None:
    """A beat that takes longer than the time between beats is waited for: the connection holds the lock."""
    task = await beating(rows, owner)
    pid = await session(rows, owner)
    async with rows.database.transaction() as connection:
        await connection.execute("select from rt.owner where id = $1 for update", owner.id)
        await held_up(connection)
        await asyncio.sleep(QUICK.heartbeat_s * 5)
    await stop(await beating_on(rows, owner, task))
    same = await rows.value("select count(*) from pg_stat_activity where pid = $1", pid)
    assert same == 1


async def beating_on(rows: LiveRows, owner: Owner, task: asyncio.Task[None]) -> asyncio.Task[None]:
    before = await rows.value("select beat_at from rt.owner where id = $1", owner.id)

    async def beat() -> bool:
        return bool(await rows.value("select beat_at > $2 from rt.owner where id = $1", owner.id, before))

    await until(beat)
    return task


async def test_a_lock_that_an_old_session_still_holds_does_not_stop_the_heartbeat(
    rows: LiveRows, database: Database
) -> None:
    async with cuttable(database.dsn) as (dsn, cut):
        owner = Owner(dsn, node="test", settings=QUICK, clock=SystemClock())
        await owner.register()
        task = await beating(rows, owner)
        old = await session(rows, owner)
        cut()  # the server does not notice: its session, and the lock, live on
        task = await beating_on(rows, owner, task)
        assert await rows.value("select count(*) from pg_stat_activity where pid = $1", old) == 1
        assert owner.may_invoke
        await rows.rows("select pg_terminate_backend($1)", old)

        async def locked() -> bool:
            return await has_lock(rows, owner)

        await until(locked)
        await stop(task)
        await owner.leave()


async def test_c4_a_claim_whose_answer_was_lost_is_given_back_without_an_attempt(
    rows: LiveRows, database: Database
) -> None:
    owner = make_owner(database, lease=PATIENT, clock=QuickClock())
    await owner.register()
    known, stranger = await rows.held(owner.id), await rows.held(owner.id)
    task = await beating(rows, owner, {(known, 1), (stranger, 7)})

    async def given_back() -> bool:
        live = await rows.live(stranger)
        return live is not None and live["owner"] is None

    await until(given_back)
    live = await rows.live(stranger)
    assert live is not None
    assert (live["st"], live["epoch"], live["fn_att"]) == ("q", 2, 0)
    assert owner.has_let_go((stranger, 1))
    assert not owner.has_let_go((stranger, 2))
    mine = await rows.live(known)
    assert mine is not None
    assert mine["owner"] == owner.id
    await stop(task)
    await owner.leave()


async def test_c4_who_nobody_can_bring_any_more_is_not_waited_for(rows: LiveRows, database: Database) -> None:
    """Time does not pass here: only the end of the claim tells that its run is lost."""
    owner = make_owner(database, lease=QUICK, clock=HandClock())
    await owner.register()
    stranger = await rows.held(owner.id)
    claims, beats = {"a claim"}, asyncio.Semaphore(0)

    def under_way() -> Collection[object]:
        beats.release()
        return claims

    task = asyncio.create_task(owner.keep(frozenset, under_way, lambda _: None))
    async with asyncio.timeout(30):
        for _ in range(4):
            await beats.acquire()
        assert not owner.has_let_go((stranger, 1))
        claims = {"a later claim"}
        await until(lambda: is_free(rows, stranger))
    assert owner.has_let_go((stranger, 1))
    await stop(task)
    await owner.leave()


async def test_c4_one_look_makes_nobody_a_stranger(rows: LiveRows, database: Database) -> None:
    """What has just ended is gone from memory, and was ours when the database was asked."""
    owner = make_owner(database, lease=QUICK, clock=HandClock())
    await owner.register()
    runs = [await rows.held(owner.id) for _ in range(3)]
    unknown: asyncio.Queue[UUID] = asyncio.Queue()
    looks = 0

    def known() -> Collection[Tenure]:
        nonlocal looks
        looks += 1
        seen, odd = divmod(looks - 1, 2)
        if odd and seen < len(runs):  # each is unknown to one beat
            unknown.put_nowait(runs[seen])
            return {(run, 1) for run in runs if run != runs[seen]}
        return {(run, 1) for run in runs}

    task = asyncio.create_task(owner.keep(known, frozenset, lambda _: None))
    async with asyncio.timeout(30):
        assert [await unknown.get() for _ in runs] == runs
        while looks < 4 * len(runs):
            await asyncio.sleep(0.05)
    assert not any(owner.has_let_go((run, 1)) for run in runs)
    await stop(task)
    await owner.leave()


async def test_c4_where_a_claim_is_in_doubt_it_is_looked_for_at_once(rows: LiveRows, database: Database) -> None:
    owner = make_owner(database, lease=LeaseSettings(ttl_s=600, heartbeat_s=200), clock=HandClock())
    await owner.register()
    task = asyncio.create_task(owner.keep(frozenset, frozenset, lambda _: None))
    owner.look_soon()
    await until(lambda: has_lock(rows, owner))
    stranger = await rows.held(owner.id)
    owner.look_soon()
    await until(lambda: is_free(rows, stranger))
    await stop(task)
    await owner.leave()


async def is_free(rows: LiveRows, run: UUID) -> bool:
    return bool(await rows.value("select owner is null from rt.live where id = $1", run))


async def test_a_run_in_memory_that_is_not_ours_at_two_beats_is_doubted(rows: LiveRows, owner: Owner) -> None:
    ours, another = await rows.held(owner.id), uuid4()
    looks = 0

    def known() -> Collection[Tenure]:
        nonlocal looks
        looks += 1
        return {(ours, 1), (another, 1), *([(uuid4(), 1)] if looks == 3 else [])}  # one passes between two beats

    doubted: asyncio.Queue[Collection[UUID]] = asyncio.Queue()
    task = asyncio.create_task(owner.keep(known, one_claim, doubted.put_nowait))
    async with asyncio.timeout(10):
        assert await doubted.get() == {another}
        assert looks >= 3, "one look is not enough"
        assert await doubted.get() == {another}
    await stop(task)


async def test_a_lease_under_another_epoch_is_doubted(rows: LiveRows, owner: Owner) -> None:
    run = await rows.held(owner.id)
    doubted: asyncio.Queue[Collection[UUID]] = asyncio.Queue()
    task = asyncio.create_task(owner.keep(lambda: {(run, 0), (run, 1)}, one_claim, doubted.put_nowait))
    async with asyncio.timeout(10):
        assert await doubted.get() == {run}
    await stop(task)


async def test_a_run_that_is_claimed_between_two_beats_is_no_stranger(rows: LiveRows, owner: Owner) -> None:
    asked: list[int] = []
    run = await rows.held(owner.id)
    known: set[Tenure] = set()

    def is_known() -> Collection[Tenure]:
        asked.append(1)
        if len(asked) == 3:
            known.add((run, 1))  # it was being loaded at the first beat
        return known

    task = asyncio.create_task(owner.keep(is_known, one_claim, lambda _: None))

    async def asked_often() -> bool:
        return len(asked) >= 8

    await until(asked_often)
    await stop(task)
    live = await rows.live(run)
    assert live is not None
    assert live["owner"] == owner.id


async def test_a_run_that_is_claimed_again_and_again_is_no_stranger(rows: LiveRows, database: Database) -> None:
    """Whatever beats see of a run that comes and goes: only the same lease, unknown for long, is one nobody has."""
    owner = make_owner(database, lease=PATIENT, clock=QuickClock())
    await owner.register()
    passing, stranger = await rows.held(owner.id), await rows.held(owner.id)
    task = await beating(rows, owner)

    async def given_back() -> bool:
        await rows.value("update rt.live set epoch = epoch + 1 where id = $1", passing)
        live = await rows.live(stranger)
        return live is not None and live["owner"] is None

    await until(given_back)
    live = await rows.live(passing)
    assert live is not None
    assert live["owner"] == owner.id
    await stop(task)
    await owner.leave()


async def test_o8_letting_go_moves_the_epoch_and_counts_nothing(rows: LiveRows, owner: Owner) -> None:
    run = await rows.held(owner.id)
    before = await rows.live(run)
    assert before is not None
    async with rows.database.connection() as connection:
        lease = (owner.id, [run], [before["epoch"]], False)
        assert len(await connection.fetch(queries("executor")["let_go"], *lease)) == 1
        assert await connection.fetch(queries("executor")["let_go"], *lease) == []
    live = await rows.live(run)
    assert live is not None
    assert (live["st"], live["owner"], live["epoch"], live["rev"], live["fn_att"], live["att"]) == (
        *("q", None, before["epoch"] + 1),
        *(before["rev"], 0, 0),
    )
