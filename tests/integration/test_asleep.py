"""A run that an executor wakes by its own timer goes on with what was remembered of it, if nothing else happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from tests.support.engine import database, executing, postgres_url
from tests.support.fake_function import Op, Request, Script, completed, failed, replaying, sleep
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, rows
from tests.support.waiting import until

__all__ = ["database", "postgres_url", "rows"]

SLEEPER = {"name": "sleeper", "retries": 2}

# What is read of a run, and with it only what is read: a mark in what is stored tells it from what is remembered.
_MARKED = """update rt.steps set output = '"read"' where run = $1 and sid = 'a'"""


def told(script: Script, requests: list[Request]) -> Script:
    """The script, which notes what it is asked."""

    def telling(request: Request) -> Any:
        requests.append(request)
        return script(request)

    return telling


def failing_once(step: str) -> Callable[[Request], Op]:
    """The first attempt fails, and the next one comes soon."""
    return lambda request: (
        completed(step, request["run"]["attempt"])
        if request["run"]["attempt"]
        else failed(step, "not yet", retry_after="50ms")
    )


async def asleep(rows: LiveRows, run: UUID) -> None:
    await until(lambda: rows.value("select st = 's' from rt.live where id = $1", run))


async def ended(rows: LiveRows, run: UUID) -> None:
    await until(lambda: rows.value("select count(*) = 1 from rt.ends where run = $1", run))


async def last_output(hand: Hand, rows: LiveRows, meanwhile: str | None = None, output: str = "kept") -> Any:
    """What the request after a sleep says of the step before it, if what is stored of the run is changed meanwhile."""
    await hand.declare(SLEEPER)
    requests: list[Request] = []
    script = told(replaying(completed("a", output), sleep("z", "400ms")), requests)
    async with executing(hand.database, {"sleeper": script}, own_timers=True):
        run = await hand.start("sleeper")
        await asleep(rows, run)
        await rows.value(_MARKED, run)
        if meanwhile is not None:
            await rows.value(meanwhile, run)
        await ended(rows, run)
    assert list(requests[-1]["steps"]) == ["a", "z"]
    return requests[-1]["steps"]["a"]["output"]


async def test_a_run_to_which_nothing_has_happened_is_not_read(hand: Hand, rows: LiveRows) -> None:
    assert await last_output(hand, rows) == "kept"


@pytest.mark.parametrize("moved", ["mail", "rev", "epoch"])
async def test_a_run_to_which_something_has_happened_is_read(hand: Hand, rows: LiveRows, moved: str) -> None:
    assert await last_output(hand, rows, f"update rt.live set {moved} = {moved} + 1 where id = $1") == "read"


async def test_a_run_of_which_there_is_much_to_keep_is_read(hand: Hand, rows: LiveRows) -> None:
    assert await last_output(hand, rows, output="x" * 60_000) == "read"


@pytest.mark.parametrize("kind", ["sleeps", "backs off"])
async def test_what_is_remembered_is_what_would_have_been_read(hand: Hand, rows: LiveRows, kind: str) -> None:
    await hand.declare(SLEEPER)
    rests: dict[str, Sequence[Op | Callable[[Request], Op]]] = {
        "sleeps": [sleep("z", "50ms")],
        "backs off": [failing_once("b"), failing_once("c")],
    }
    script = replaying(completed("a", {"n": 1.0}), *rests[kind], completed("last"), output={"done": True})
    seen, stored = [], []
    for own_timers in (True, False):
        requests: list[Request] = []
        async with executing(hand.database, {"sleeper": told(script, requests)}, own_timers=own_timers):
            run = await hand.start("sleeper", '{"order": 7}', tags={"t": "u"}, test=True)
            fires = asyncio.create_task(fired_until_ended(hand, rows, run)) if not own_timers else None
            await ended(rows, run)
            if fires is not None:
                await fires
        seen.append([comparable(each) for each in requests])
        stored.append(
            (
                await rows.rows("select steps, bytes, att, rev, status::text from rt.ends where run = $1", run),
                await rows.rows(
                    "select sid, seq, kind::text, status::text, output, att from rt.steps where run = $1", run
                ),
                await rows.rows("select n, sid, k from rt.attempts where run = $1 order by n", run),
            )
        )
    assert seen[0] == seen[1]
    assert stored[0] == stored[1]


async def fired_until_ended(hand: Hand, rows: LiveRows, run: UUID) -> None:
    async def is_over() -> bool:
        if await rows.value("select count(*) from rt.wait where run = $1 and kind in ('s', 'b')", run):
            await hand.fire(run)
        return bool(await rows.value("select count(*) from rt.ends where run = $1", run))

    await until(is_over)


def comparable(request: Request) -> Request:
    """Without what is another one for each run, and for each moment."""
    run = {**request["run"], "id": None, "started_at": None}
    return {**request, "ts": None, "run": run, "event": {**request["event"], "id": None, "ts": None}}
