"""Timers that the executor which set them fires itself: never early, once, and the run goes on at once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

import pytest

from services.core.domain.run import Status
from services.core.runtime.settings import LeaseSettings
from services.core.store.queries import queries
from services.executor.woken import Woken
from tests.support.engine import ScriptedFunctions as Functions
from tests.support.engine import database, executing, kill, make_incarnation, postgres_url, slow_commits
from tests.support.fake_function import Answer, Request, completed, replaying, sleep, wait_for_event
from tests.support.hand import ALL_PARTS, Hand
from tests.support.live_rows import DAY_MS, LiveRows, Recorder, recorder, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "recorder", "rows"]

SLEEPER = {"name": "sleeper", "retries": 0}


async def ended(hand: Hand, runs: Sequence[uuid.UUID]) -> None:
    live = LiveRows(hand.database, hand.tenant)
    await until(lambda: live.value("select count(*) = $2 from rt.ends where run = any ($1)", list(runs), len(runs)))


class TestExecutor:
    """Nobody else fires timers here."""

    async def test_a_sleep_ends_when_it_is_due_and_not_before(self, hand: Hand, rows: LiveRows) -> None:
        await hand.declare(SLEEPER)
        script = replaying(sleep("z", "200ms"), completed("a"), sleep("y", "50ms"))
        async with executing(hand.database, {"sleeper": script}, own_timers=True):
            runs = [await hand.start("sleeper") for _ in range(40)]
            await ended(hand, runs)
        steps = await rows.rows(
            "select sid, extract(epoch from t1 - t0) * 1000 as took from rt.steps where run = any ($1) and kind = 's'",
            runs,
        )
        assert sorted(row["sid"] for row in steps) == ["y"] * 40 + ["z"] * 40
        assert all(float(row["took"]) >= {"z": 200, "y": 50}[row["sid"]] for row in steps)
        assert await rows.value("select count(*) from rt.attempts") == 0

    async def test_one_that_finds_no_room_is_hinted_at(self, hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
        await hand.declare(SLEEPER, {"name": "holder", "retries": 0})
        release = asyncio.Event()

        async def hold(_: Request) -> Answer:
            await release.wait()
            return {"op": "run_completed", "output": None}

        scripts = {"sleeper": replaying(sleep("z", "1s")), "holder": hold}
        async with executing(hand.database, scripts, own_timers=True, slots=1, publisher=recorder) as (executor, _):
            run = await hand.start("sleeper")
            await until(lambda: rows.value("select st = 's' from rt.live where id = $1", run))
            holder = await hand.start("holder")
            executor.hint([holder])
            await until(lambda: rows.value("select st = 'r' from rt.live where id = $1", holder))
            recorder.ready.clear()
            await until(lambda: run in recorder.ready)
            assert await rows.value("select st::text from rt.live where id = $1", run) == "q"
            release.set()
            await ended(hand, [run, holder])

    async def test_the_room_of_a_run_is_kept_while_its_timer_is_fired(self, hand: Hand, rows: LiveRows) -> None:
        await hand.declare(SLEEPER, {"name": "other", "retries": 0})
        scripts = {"sleeper": replaying(sleep("z", "300ms")), "other": replaying()}
        async with executing(hand.database, scripts, own_timers=True, slots=1) as (executor, _):
            run = await hand.start("sleeper")
            async with slow_commits(hand.database, f"t_{hand.tenant}.steps") as stopped:
                await stopped()
                other = await hand.start("other")
                executor.hint([other])
                for _ in range(20):  # it looks, too
                    await rows.value("select pg_sleep(0.03)")
                    assert await rows.status(other) is Status.QUEUED
            await ended(hand, [run, other])

    async def test_one_that_was_resumed_meanwhile_is_left_alone(self, hand: Hand, rows: LiveRows) -> None:
        await hand.declare({**SLEEPER, "cancel_on": [{"event": "stop"}]})
        async with executing(hand.database, {"sleeper": replaying(sleep("z", "150ms"))}, own_timers=True):
            gone = await hand.start("sleeper")
            await until(lambda: rows.value("select st = 's' from rt.live where id = $1", gone))
            await hand.send("stop")
            kept = await hand.start("sleeper")
            await ended(hand, [gone, kept])
        assert await rows.status(gone) is Status.CANCELLED
        assert await rows.status(kept) is Status.COMPLETED

    async def test_who_stops_tells_the_schedulers(self, hand: Hand, rows: LiveRows, recorder: Recorder) -> None:
        await hand.declare(SLEEPER)
        script = replaying(sleep("z", "20s"), wait_for_event("w", "go", timeout="30s"))
        async with executing(hand.database, {"sleeper": script}, own_timers=True, publisher=recorder):
            run = await hand.start("sleeper")
            await until(lambda: rows.value("select st = 's' from rt.live where id = $1", run))
            assert recorder.timers == []
        ((told, due_ms),) = recorder.timers
        assert told == run
        true_ms = await rows.value("select rt.ms(due_at) from rt.wait where run = $1", run)
        assert 0 <= due_ms[0] - true_ms < 1_000

    async def test_what_a_killed_one_had_in_memory_is_fired_by_the_schedulers_pass(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        await hand.declare(SLEEPER)
        functions = Functions({"sleeper": replaying(sleep("z", "400ms"))})
        incarnation = make_incarnation(hand.database, functions, own_timers=True)
        await incarnation.owner.register()
        life = asyncio.create_task(incarnation.run())
        run = await hand.start("sleeper")
        await until(lambda: rows.value("select st = 's' from rt.live where id = $1", run))
        await kill(hand.database, incarnation, life)
        await until(lambda: rows.value("select fired = 1 from rt.fire_v1($1, 500)", ALL_PARTS))
        assert await rows.status(run) is Status.QUEUED

    async def test_a_run_that_was_woken_by_a_call_whose_answer_was_lost_is_let_go(
        self, hand: Hand, rows: LiveRows
    ) -> None:
        await hand.declare(SLEEPER)
        script = replaying(sleep("z", "1h"))
        lease = LeaseSettings(heartbeat_s=0.1)
        async with executing(hand.database, {"sleeper": script}, lease=lease) as (executor, _):
            run = await hand.start("sleeper")
            await until(lambda: rows.value("select st = 's' from rt.live where id = $1", run))
            wait = await rows.value("update rt.wait set due_at = rt.now() where run = $1 returning id", run)
            answer = await rows.rows(
                queries("executor")["wake"], executor.owner.id, [wait], 0, False, 1, None, None, None
            )
            assert [row["id"] for row in Woken.of(answer).runs] == [run]
            await ended(hand, [run])
        assert await rows.status(run) is Status.COMPLETED
        assert await rows.value("select count(*) from rt.attempts") == 0


class TestWake:
    """`rt.wake_v1`."""

    async def wake(
        self, rows: LiveRows, owner: int, waits: Sequence[uuid.UUID], room: int = 10, ahead_ms: int = 0
    ) -> Woken:
        answer = await rows.rows(
            queries("executor")["wake"], owner, list(waits), ahead_ms, False, room, None, None, None
        )
        return Woken.of(answer)

    async def asleep(self, rows: LiveRows, delay_ms: int, **start: object) -> tuple[uuid.UUID, uuid.UUID]:
        run = await rows.asleep(delay_ms, **start)
        return run, await rows.value("select id from rt.wait where run = $1", run)

    async def test_it_fires_and_claims_once(self, rows: LiveRows) -> None:
        owner = await rows.owner()
        run, wait = await self.asleep(rows, 0)
        before = await rows.live(run)
        woken = await self.wake(rows, owner, [wait])
        assert woken.left == []
        assert [(row["run"], row["owner"], row["ga"]) for row in woken.fired] == [(run, None, None)]
        (claimed,), live = woken.runs, await rows.live(run)
        assert before is not None
        assert live is not None
        assert (claimed["owner"], claimed["epoch"], claimed["mail"]) == (owner, before["epoch"] + 1, before["mail"] + 1)
        assert live["st"] == "r"
        assert all(live[name] == claimed[name] for name in ("owner", "epoch", "mail"))
        assert await rows.value("select count(*) from rt.steps where run = $1 and sid = 's' and status = 'c'", run) == 1
        assert await self.wake(rows, owner, [wait]) == Woken([], [], [])

    async def test_what_is_not_due_stays_and_tells_for_how_long(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 60_000)
        ((left, left_ms),) = (await self.wake(rows, await rows.owner(), [wait])).left
        assert left == wait
        assert 50_000 < left_ms <= 60_000
        assert await rows.status(run) is Status.SLEEPING

    async def test_what_is_due_soon_is_done_when_it_is_due(self, rows: LiveRows) -> None:
        owner = await rows.owner()
        (run, first), (other, last) = await self.asleep(rows, 0), await self.asleep(rows, 400)
        due = await rows.value("select due_at from rt.wait where id = $1", last)
        waking = asyncio.create_task(self.wake(rows, owner, [first, last], ahead_ms=1_000))
        seen = [await rows.status(run)]
        while not waking.done():
            seen.append(await rows.status(run))
            if await rows.value("select rt.now() < $1", due):
                assert seen[-1] is Status.SLEEPING  # nobody sees it before
        woken = await waking
        assert len(seen) > 1
        assert {row["id"] for row in woken.runs} == {run, other}
        assert woken.left == []
        assert await rows.value("select bool_and(t1 >= t0 + interval '400 ms') from rt.steps where run = $1", other)

    async def test_what_is_due_later_than_that_does_not_keep_it(self, rows: LiveRows) -> None:
        (run, near), (_, far) = await self.asleep(rows, 0), await self.asleep(rows, 60_000)
        woken = await self.wake(rows, await rows.owner(), [near, far], ahead_ms=20)
        assert [row["id"] for row in woken.runs] == [run]
        assert [wait for wait, _ in woken.left] == [far]

    async def test_what_another_transaction_holds_stays(self, rows: LiveRows) -> None:
        (one, held), (other, free) = await self.asleep(rows, 0), await self.asleep(rows, 0)
        async with rows.locked(one):
            woken = await self.wake(rows, await rows.owner(), [held, free])
        assert woken.left == [(held, 0)]
        assert [row["id"] for row in woken.runs] == [other]
        assert await rows.status(one) is Status.SLEEPING

    async def test_without_room_it_only_fires(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 0)
        woken = await self.wake(rows, await rows.owner(), [wait], room=0)
        assert [row["run"] for row in woken.fired] == [run]
        assert woken.runs == []
        assert await rows.status(run) is Status.QUEUED

    async def test_an_owner_that_was_declared_dead_takes_nothing(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 0)
        assert (await self.wake(rows, await rows.owner(dead=True), [wait])).runs == []
        assert await rows.status(run) is Status.QUEUED

    async def test_a_run_behind_a_gate_waits_for_its_slot(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 0)
        await rows.rows("update rt.live set gv = 1, ga = 7 where id = $1", run)
        woken = await self.wake(rows, await rows.owner(), [wait])
        assert [row["ga"] for row in woken.fired] == [7]
        assert woken.runs == []
        assert await rows.status(run) is Status.BLOCKED

    async def test_a_held_run_is_told_of(self, rows: LiveRows) -> None:
        holder = await rows.owner()
        run, wait = await self.asleep(rows, 0)
        await rows.rows("update rt.live set st = 'r', owner = $2 where id = $1", run, holder)
        woken = await self.wake(rows, await rows.owner(), [wait])
        assert [row["owner"] for row in woken.fired] == [holder]
        assert woken.runs == []

    async def test_a_run_that_only_workers_serve_is_told_of(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 0)
        await rows.rows("update rt.live set pooled = true where id = $1", run)
        woken = await self.wake(rows, await rows.owner(), [wait])
        assert [(row["id"], row["owner"]) for row in woken.runs] == [(run, None)]

    async def test_a_run_whose_own_time_is_over_is_not_woken(self, rows: LiveRows) -> None:
        run, wait = await self.asleep(rows, 0)
        await rows.rows("update rt.live set deadline = rt.now() where id = $1", run)
        assert await self.wake(rows, await rows.owner(), [wait]) == Woken([(wait, 0)], [], [])

    @pytest.mark.parametrize("kind", ["e", "c", "d", "x", "p"])
    async def test_other_timers_are_the_schedulers(self, rows: LiveRows, kind: str) -> None:
        values = {"child": uuid.uuid4()} if kind == "c" else {}
        run = await rows.rest("w", [rows.wait(kind, delay_ms=DAY_MS, **values)])
        wait = await rows.value("update rt.wait set due_at = rt.now() where run = $1 returning id", run)
        assert await self.wake(rows, await rows.owner(), [wait]) == Woken([(wait, 0)], [], [])

    async def test_where_tenants_share_each_takes_its_share(self, rows: LiveRows) -> None:
        owner = await rows.owner()
        waits = [(await self.asleep(rows, 0))[1] for _ in range(5)]
        answer = await rows.rows(queries("executor")["wake"], owner, waits, 0, False, 10, [rows.tenant], [2], 9)
        woken = Woken.of(answer)
        assert (len(woken.fired), len(woken.runs)) == (5, 2)


async def test_one_far_timer_does_not_keep_the_others_of_its_batch_from_firing(rows: LiveRows) -> None:
    """As where Postgres's clock was set back while it was kept."""
    far, near = await rows.asleep(26 * DAY_MS), await rows.asleep(0)
    waits = [await rows.value("select id from rt.wait where run = $1", run) for run in (far, near)]
    told = await rows.rows(queries("executor")["wake"], await rows.owner(), waits, 0, False, 10, None, None, None)
    assert [row["id"] for row in Woken.of(told).runs] == [near]
