"""The workloads, as Restate does them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tests.bench.child import NotReady, until
from tests.bench.figures import Figure, labelled, spread_ms
from tests.bench.lean_client import CallFailed, LeanClient
from tests.bench.processes import Meter, Pids
from tests.bench.workloads.load import in_flight

Ingress = LeanClient

_LIMIT_S = 120.0
_PLAIN = {"mode": "plain"}
_SETTLE_S = 5.0
_WINDOW_S = 20.0


class Peer(Protocol):
    """What the workloads need of a running Restate."""

    ingress: LeanClient
    admin: LeanClient
    step_log: Path
    key_log: Path

    def pids(self) -> Pids:
        """Duty → processes."""
        ...

    async def kill(self) -> None:
        """SIGKILL for server and worker."""
        ...

    async def start(self) -> None:
        """Starts both again."""
        ...


async def one_run_alone(peer: Peer, asleep: int) -> list[Figure]:
    """W1: a step is timed in the handler."""
    await _warm_up(peer)
    runs: list[float] = []
    steps: list[float] = []
    with Meter(peer.pids) as meter:
        for _ in range(100):
            began = time.perf_counter()
            answer = await peer.ingress.call("POST", "/svc/chain", {"k": 10})
            runs.append(time.perf_counter() - began)
            steps += answer["d"]
    return [*spread_ms("step", steps), *spread_ms("run", runs), *meter.figures(1_000)]


async def many_runs(peer: Peer, asleep: int) -> list[Figure]:
    """W2: each run is one call of the ingress, answered at its end; 200 at once."""
    await _warm_up(peer)
    with Meter(peer.pids) as meter:
        await in_flight(2_000, 200, lambda _: peer.ingress.call("POST", "/svc/chain", {"k": 5}))
    return [
        Figure("steps_per_s", 10_000 / meter.wall_s, "1/s"),
        Figure("runs_per_s", 2_000 / meter.wall_s, "1/s"),
        *meter.figures(10_000),
    ]


async def starts(peer: Peer, asleep: int) -> list[Figure]:
    """W3: sent with a delay of an hour, so accepted and not run. It has no batches."""
    await _warm_up(peer)
    with Meter(peer.pids) as meter:
        await in_flight(5_000, 64, lambda _: peer.ingress.call("POST", "/svc/chain/send?delay=3600s", {"k": 5}))
    return labelled([Figure("starts_per_s", 5_000 / meter.wall_s, "1/s"), *meter.figures(5_000)], mode="single")


async def sleeps(peer: Peer, asleep: int) -> list[Figure]:
    """W4: a thousand calls at once."""
    await _warm_up(peer)
    late: list[float] = []

    async def sleep(_: int) -> None:
        late.append((await peer.ingress.call("POST", "/svc/sleeper", {"s": 2}))["late"])

    with Meter(peer.pids) as meter:
        await in_flight(1_000, 1_000, sleep)
    return [*spread_ms("late", late), *meter.figures(1_000)]


async def events(peer: Peer, asleep: int) -> list[Figure]:
    """W5: awakeables, resolved through the ingress; until the waiting call is answered."""
    await _warm_up(peer)
    calls = [
        asyncio.create_task(peer.ingress.call("POST", "/svc/waiter", {"key": str(number)})) for number in range(1_000)
    ]

    async def all_wait() -> bool:
        return len(_lines(peer.key_log)) >= len(calls)

    await until(all_wait, within_s=_LIMIT_S, what="1,000 awakeables", every_s=0.2)
    await asyncio.sleep(2)
    names = dict(line.split() for line in _lines(peer.key_log))

    async def resolve(number: int) -> float:
        began = time.perf_counter()
        await peer.ingress.call("POST", f"/restate/awakeables/{names[str(number)]}/resolve", {"x": number})
        await calls[number]
        return time.perf_counter() - began

    with Meter(peer.pids) as meter:
        await in_flight(900, 100, resolve)
    alone = [await resolve(number) for number in range(900, 1_000)]
    burst = labelled([Figure("events_per_s", 900 / meter.wall_s, "1/s"), *meter.figures(900)], mode="single")
    return [*burst, *spread_ms("alone", alone)]


async def sleepers(peer: Peer, asleep: int) -> list[Figure]:
    """W6: sent one by one; measured once all are suspended."""
    await _warm_up(peer)
    await in_flight(asleep, 64, lambda _: peer.ingress.call("POST", "/lazy/sleeper/send", {"s": 24 * 3600}))
    query = "select count(*) as n from sys_invocation where target_service_name = 'lazy' and status = 'suspended'"

    async def all_sleep() -> bool:
        return await _count(peer, query) >= asleep

    await until(all_sleep, within_s=4 * _LIMIT_S, what="all are suspended", every_s=3)
    await asyncio.sleep(_SETTLE_S)
    with Meter(peer.pids) as meter:
        await asyncio.sleep(_WINDOW_S)
    found = [Figure("cpu_pct", meter.percent({"server", "worker"}), "%"), *meter.figures()]
    return labelled(found, asleep=asleep)


async def killed(peer: Peer, asleep: int) -> list[Figure]:
    """W7: server and worker are killed together; until the engine says that all have completed."""
    await in_flight(500, 64, lambda number: peer.ingress.call("POST", "/svc/chain/send", {"k": 5, "key": str(number)}))

    async def reached() -> bool:
        return len(_lines(peer.step_log)) >= 1_000

    await until(reached, within_s=_LIMIT_S, what="1,000 steps", every_s=0.002)
    began = time.perf_counter()
    await peer.kill()
    await peer.start()
    query = "select count(*) as n from sys_invocation where status = 'completed' and completion_result = 'success'"

    async def ended() -> bool:
        with suppress(CallFailed):
            return await _count(peer, query) >= 500
        return False

    with suppress(NotReady):
        await until(ended, within_s=_LIMIT_S, what="500 completed", every_s=0.05)
    recovery_s = time.perf_counter() - began
    bodies = _lines(peer.step_log)
    return [
        Figure("recovery_s", recovery_s, "s"),
        Figure("lost", 500 - await _count(peer, query), "runs"),
        Figure("repeated_steps", len(bodies) - len(set(bodies)), "steps"),
        Figure("missing_steps", 2_500 - len(set(bodies)), "steps"),
    ]


async def parent_and_children(peer: Peer, asleep: int) -> list[Figure]:
    """W8: calls of a service, awaited together."""
    await _warm_up(peer)
    whole = []
    with Meter(peer.pids) as meter:
        for _ in range(5):
            began = time.perf_counter()
            await peer.ingress.call("POST", "/svc/parent", {"n": 200})
            whole.append(time.perf_counter() - began)
    found = spread_ms("whole", whole, percents=(50,))
    return [*(Figure(each.metric.removeprefix("whole_"), each.value, each.unit) for each in found), *meter.figures()]


async def long_run(peer: Peer, asleep: int) -> list[Figure]:
    """The growth of state: one run of 2,000 steps."""
    await _warm_up(peer)
    began = time.perf_counter()
    took = (await peer.ingress.call("POST", "/svc/chain", {"k": 2_000}))["d"]
    total_s = time.perf_counter() - began
    return [
        Figure("total_s", total_s, "s", _PLAIN),
        Figure("last_to_first_quarter", sum(took[-500:]) / sum(took[:500]), "x", _PLAIN),
    ]


WORKLOADS: Mapping[str, Callable[[Any, int], Awaitable[list[Figure]]]] = {
    "W1": one_run_alone,
    "W2": many_runs,
    "W3": starts,
    "W4": sleeps,
    "W5": events,
    "W6": sleepers,
    "W7": killed,
    "W8": parent_and_children,
    "growth": long_run,
}


async def _warm_up(peer: Peer) -> None:
    await in_flight(100, 10, lambda _: peer.ingress.call("POST", "/svc/chain", {"k": 5}))


async def _count(peer: Peer, query: str) -> int:
    answer = await peer.admin.call("POST", "/query", {"query": query})
    return sum(int(row["n"]) for row in answer["rows"])


def _lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []
