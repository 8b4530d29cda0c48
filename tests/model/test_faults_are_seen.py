"""The model sees what goes wrong: one rule of the engine is taken out, and a short plan that needs it fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import asyncpg
import pytest

from services.executor.worker_stream.session import WorkerSession
from tests.model.episode import play
from tests.model.plan import Cancel, Crash, Emit, Fall, LetGo, Op, Pass, Plan, Retry, Settle, Start, Tick, Transport
from tests.model.script import Await, Invoke, Limit, Nap, Send, Step, Work, Workflow

DAY_MS = 86_400_000

# Some faults show only where things meet as the plan has it, which a busy machine does not do each time.
_MOST_EPISODES = 10


@dataclass(frozen=True, slots=True)
class Break:
    """A rule taken out of functions of the database, `old` → `new`; by a statement; or of the code behind the worker
    stream: another `method` of sessions.
    """

    functions: str = ""
    old: str = ""
    new: str = ""
    statement: str = ""
    method: Callable[[WorkerSession], None] | None = None

    async def do(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take it out."""
        if self.method is not None:
            monkeypatch.setattr(WorkerSession, self.method.__name__, self.method)
        connection = await asyncpg.connect(url)
        try:
            for function in self.functions.split():
                text = await connection.fetchval("select pg_get_functiondef(($1::text)::regproc)", f"rt.{function}")
                assert self.old in text
                await connection.execute(text.replace(self.old, self.new))
            if self.statement:
                await connection.execute(self.statement)
        finally:
            await connection.close()


def start(workflow: str, copies: int = 1, key: str | None = None) -> Start:
    return Start(0, workflow, k=1, x=5, key=key, copies=copies)


def emit(name: str, id: str | None = None, copies: int = 1) -> Emit:
    return Emit(0, ((name, 1, 5, id),), copies)


def workflow(name: str, *steps: Step, **options: object) -> Workflow:
    return Workflow(name=name, steps=steps, **{"triggers": {}, **options})  # type: ignore[arg-type]


WORK = Work(id="a")
SLOW = Work(id="a", slow=True)
WAIT = Await(id="a", event="ext.a", matched=False, above=None, timeout_ms=1_000, lookback="run")


def lost(session: WorkerSession) -> None:
    """All that a worker executed when it went away may be executed again, as if it had not begun."""
    for invocation in list(session.running):
        invocation.forgotten()


CASES: dict[str, tuple[Break, list[Workflow], list[tuple[Op, ...]], str]] = {
    "a limit that is not kept": (
        Break("gate_room_v1", "select case", "select 100 + case"),
        [workflow("limited", SLOW, limits=(Limit(limit=1, keyed=False),))],
        [(start("limited", 3),), (Settle(),)],
        "has a limit of 1|no more slots than the limit",
    ),
    "a fence that lets everybody through": (
        Break(
            "commit_v1 commit_steps_v1 commit_rests_v1",
            "(l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev",
            "true",
        ),
        [workflow("fenced", SLOW, Nap(id="b", ms=0))],
        # Several runs: where the same executor claims one again, it stops what it still does for it.
        [
            (start("fenced", 6),),
            (Settle(),),
            *[(Cancel(0, keep=False),)] * 6,
            *[(Retry(0),)] * 6,
            (Settle(),),
            (LetGo(0.2),),
            (Settle(),),
        ],
        "of before the retry",
    ),
    "timers that fire early": (
        Break("fire_v1", "w.due_at <= v_now and", "w.due_at <= v_now + interval '1 day' and"),
        [workflow("early", Nap(id="a", ms=3_600_000))],
        [(start("early"),), (Settle(),), (Tick(1),)],
        "a timer was early",
    ),
    "events that are accepted twice": (
        Break(statement="alter table rt.event_ids drop constraint event_ids_pkey"),
        [workflow("twice", WORK, triggers={"ext.a": None})],
        [(emit("ext.a", "one"),), (emit("ext.a", "one"),)],
        "was answered",
    ),
    "starts that are not idempotent": (
        Break(statement="alter table rt.idem drop constraint idem_pkey"),
        [workflow("keyed", WORK)],
        [(start("keyed", key="one"),), (start("keyed", key="one"),)],
        "has 2 runs of key",
    ),
    "waits that no event finds": (
        Break("open_waits_v1", "then u.val_h else 0 end", "then u.val_h + 1 else 0 end"),
        [workflow("matched", Await(id="a", event="ext.a", matched=True, above=None, timeout_ms=DAY_MS))],
        [(start("matched"),), (Settle(),), (emit("ext.a"),)],
        "did not resume a of run",
    ),
    "looking back that comes too late": (
        Break("fire_v1", "(not w.arming or w.looked_at <= v_patience)", "true"),
        [workflow("late", Nap(id="n", ms=600_000), WAIT)],
        [
            (start("late"),),
            (Settle(),),
            (emit("ext.a"),),
            (Crash(0, "after commit", 1), Crash(1, "after commit", 1)),
            (Pass(600_000),),
            (Tick(1),),
            (Settle(),),
            (Pass(1_500),),
            (Tick(1),),
        ],
        "though it looked back",
    ),
    "marks that are lost": (
        Break(statement="create rule lost as on insert to rt.mark do instead nothing"),
        [workflow("child", WORK), workflow("parent", Invoke(id="a", workflow="child", timeout_ms=DAY_MS))],
        [(start("parent"),)],
        "its child .* had ended",
    ),
    "workers that go away and are not missed": (
        Break(method=lost),
        [workflow("worked", SLOW)],
        [(start("worked"),), (Settle(),), (Fall(0), Fall(1))],
        "ran 2 times, with 0 failures and 0 losses",
    ),
    "events that are not sent": (
        Break(statement="create rule lost as on insert to rt.mark where new.kind = 'send_event' do instead nothing"),
        [workflow("sender", Send(id="a", events=("sent",)))],
        [(start("sender"),)],
        "its events",
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_rule_taken_out_is_seen(name: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, workflows, groups, seen = CASES[name]
    await broken.do(postgres_url, monkeypatch)
    found: list[str] = []
    for _ in range(_MOST_EPISODES):
        found += await play(postgres_url, plan(workflows, groups, "http" if broken.method is None else "stream"))
        if any(re.search(seen, fault) for fault in found):
            return
    pytest.fail(f"{seen!r} was not seen: {found}")


@pytest.mark.parametrize("transport", get_args(Transport))
async def test_with_all_rules_in_place_nothing_is_seen(transport: Transport, postgres_url: str) -> None:
    workflows = [workflow for case in CASES.values() for workflow in case[1]]
    groups = [group for case in CASES.values() for group in case[2]]
    assert await play(postgres_url, plan(workflows, groups, transport)) == []


def plan(workflows: list[Workflow], groups: list[tuple[Op, ...]], transport: Transport) -> Plan:
    """A plan in which hints arrive, but for those to stop."""
    transports = (transport, transport)
    return Plan(
        0, tuple(workflows), tuple(groups), lost=0, doubled=0, late=0, unheard=1, slots=8, transports=transports
    )
