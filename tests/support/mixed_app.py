"""Workflows with limits, waits, children, events, retries, sleeps and a cron trigger; they see limits from inside.

A body may outlive its lease when its executor has died, so what counts against a limit are the distinct runs in it that
hold a lease (engine section 5): where more runs than allowed are inside, the database tells which of them do.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
from runr_workflows import Context, RetryAfterError, Step, Workflows

from services.core.runtime.ids import ulid_uuid
from tests.support.remote_bodies import RemoteBodies
from tests.support.workflow_app import Bodies

KINDS = ("keyed", "narrow", "waiter", "parent", "sender")
"""The workflows that somebody starts; the others are started by these, or by time."""

WORKFLOW_LIMITS = {"keyed": 3, "narrow": 2, "child": 2, "listener": 3}
KEY_LIMIT = 2
ACCOUNTS = 2

_BODY_S = 0.2
_LEASED = "select count(*) from rt.live where id = any ($1) and owner is not null"


class Gates:
    """Who is inside of each limit. `most` are the most distinct runs that ever were at once."""

    def __init__(self, database_url: str) -> None:
        self.most: Counter[str] = Counter()
        self.faults: list[str] = []
        self._database_url = database_url
        self._inside: dict[str, Counter[str]] = defaultdict(Counter)
        self._changing = threading.Lock()

    @contextmanager
    def inside(self, run: str, limits: dict[str, int]) -> Iterator[None]:
        """A body of this run is inside of these limits, during the block."""
        with self._changing:
            for gate in limits:
                self._inside[gate][run] += 1
        try:
            for gate, limit in limits.items():
                self._look(gate, limit)
            yield
        finally:
            with self._changing:
                for gate in limits:
                    self._inside[gate][run] -= 1

    def _look(self, gate: str, limit: int) -> None:
        with self._changing:
            runs = [run for run, bodies in self._inside[gate].items() if bodies]
        if len(runs) > limit:
            leased = asyncio.run(self._leased(runs))
            if leased > limit:
                self.faults.append(f"{leased} leased runs are in {gate}, which has a limit of {limit}: {runs}")
        else:
            with self._changing:
                self.most[gate] = max(self.most[gate], len(runs))

    async def _leased(self, runs: list[str]) -> int:
        connection = await asyncpg.connect(self._database_url)
        try:
            return int(await connection.fetchval(_LEASED, [ulid_uuid(run) for run in runs]))
        finally:
            await connection.close()


Work = Callable[[Context, str], str]


class MixedApp:
    """What `serving` registers."""

    def __init__(self, database_url: str) -> None:
        self.gates = Gates(database_url)

    def register(self, wf: Workflows, bodies: Bodies) -> None:
        """Define all workflows."""
        _define(wf, lambda *body: self.work(bodies, *body))

    def work(self, bodies: Bodies, run: str, step: str, limits: dict[str, int]) -> str:
        """A body inside of limits."""
        with self.gates.inside(run, limits):
            bodies.record(run, step)
            time.sleep(_BODY_S)
        return step


def register_remote(wf: Workflows, bodies: RemoteBodies) -> None:
    """Define all workflows in a worker process: the bodies' `work` is in that of the test."""
    _define(wf, lambda *body: str(bodies.ask("work", *body)))


def _define(wf: Workflows, execute: Callable[[str, str, dict[str, int]], str]) -> None:
    def work(ctx: Context, step: str) -> str:
        limits = {}
        if ctx.workflow in WORKFLOW_LIMITS:
            limits[ctx.workflow] = WORKFLOW_LIMITS[ctx.workflow]
        if ctx.workflow == "keyed":
            limits[f"keyed by {ctx.event['data']['account']}"] = KEY_LIMIT
        return execute(ctx.run_id, step, limits)

    _limited(wf, work)
    _waiting(wf, work)
    _invoking(wf, work)


def _limited(wf: Workflows, work: Work) -> None:
    @wf.workflow(
        "keyed",
        retries=10,
        concurrency=[{"limit": KEY_LIMIT, "key": "event.data.account"}, {"limit": WORKFLOW_LIMITS["keyed"]}],
    )
    def keyed(ctx: Context, step: Step) -> Any:
        step.run("debit", work, ctx, "debit")
        step.sleep("hold", "1s")
        step.run("credit", work, ctx, "credit")
        return ctx.event["data"]["n"]

    @wf.workflow("narrow", retries=10, concurrency=WORKFLOW_LIMITS["narrow"])
    def narrow(ctx: Context, step: Step) -> Any:
        def flaky() -> None:
            work(ctx, "flaky")
            if ctx.attempt == 0:
                raise RetryAfterError("not yet", "100ms")

        step.run("flaky", flaky)
        return ctx.event["data"]["n"]


def _waiting(wf: Workflows, work: Work) -> None:
    @wf.workflow("waiter", retries=10, triggers=[{"event": "mixed.placed"}])
    def waiter(ctx: Context, step: Step) -> Any:
        step.run("before", work, ctx, "before")
        shipped = step.wait_for_event("shipped", "mixed.shipped", match="data.n", lookback="run", timeout="1h")
        step.run("after", work, ctx, "after")
        return shipped and shipped["data"]["n"]

    @wf.workflow("minutely", retries=10, triggers=[{"cron": "* * * * *", "catch_up": "all"}])
    def minutely(ctx: Context, step: Step) -> Any:
        step.run("tick", work, ctx, "tick")
        return ctx.event["data"]["scheduled_at"]


def _invoking(wf: Workflows, work: Work) -> None:
    @wf.workflow("child", retries=10, concurrency=WORKFLOW_LIMITS["child"])
    def child(ctx: Context, step: Step) -> Any:
        step.run("work", work, ctx, "work")
        return ctx.event["data"]["n"]

    @wf.workflow("parent", retries=10)
    def parent(ctx: Context, step: Step) -> Any:
        return step.invoke("child", child, data={"n": ctx.event["data"]["n"]})

    @wf.workflow("sender", retries=10)
    def sender(ctx: Context, step: Step) -> Any:
        n = ctx.event["data"]["n"]
        step.send_event("tell", {"name": "mixed.told", "id": f"told-{n}", "data": {"n": n}})
        return n

    @wf.workflow("listener", retries=10, triggers=[{"event": "mixed.told"}], concurrency=WORKFLOW_LIMITS["listener"])
    def listener(ctx: Context, step: Step) -> Any:
        step.run("listen", work, ctx, "listen")
        return ctx.event["data"]["n"]
