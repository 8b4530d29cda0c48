"""Random workflows: every kind of step, limit, trigger and failure, drawn from a seed.

Who invokes and who sends is layered, so that nothing goes round for ever: a workflow invokes, and sends events to, only
those of lower levels.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from tests.model.script import Await, Invoke, Limit, Nap, Send, Step, Work, Workflow

OUTSIDE = ("ext.a", "ext.b")
STOP = "stop"
SENT = "sent"
WATCHER = "watcher"
CLOCKWORK = "clockwork"

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_RUN_ENDS = ("runr/run.completed", "runr/run.failed", "runr/run.cancelled", "runr/run.timed_out")


def draw_workflows(rng: random.Random) -> tuple[Workflow, ...]:
    """The workflows of one episode."""
    found = [_leaf(rng, number) for number in range(2)]
    found += [_upper(rng, 1, number, found) for number in range(2)]
    found += [_upper(rng, 2, number, found) for number in range(2)]
    if rng.random() < 0.3:
        heard = {name: None for name in rng.sample(_RUN_ENDS, rng.randint(1, 3))}
        found.append(Workflow(name=WATCHER, steps=(Work(id="look"),), triggers=heard))
    if rng.random() < 0.3:
        found.append(Workflow(name=CLOCKWORK, steps=(Work(id="tick"),), triggers={}, cron="*/5 * * * *"))
    return tuple(found)


def _leaf(rng: random.Random, number: int) -> Workflow:
    steps = tuple(_own_step(rng, place) for place in range(rng.randint(1, 3)))
    return Workflow(
        name=f"leaf-{number}",
        steps=steps,
        retries=rng.choice((0, 1, 3)),
        limits=_limits(rng),
        triggers={SENT: None} if rng.random() < 0.5 else {},
        timeout_ms=_timeout(rng),
        checkpoint=_checkpoint(rng),
    )


def _upper(rng: random.Random, level: int, number: int, below: list[Workflow]) -> Workflow:
    steps: list[Step] = []
    for place in range(rng.randint(1, 5)):
        kind = rng.random()
        if kind < 0.45:
            steps.append(_own_step(rng, place))
        elif kind < 0.7:
            steps.append(_await(rng, place))
        elif kind < 0.88:
            child = rng.choice(below).name
            timeout_ms = rng.choice((_MINUTE_MS, _HOUR_MS, 24 * _HOUR_MS))
            steps.append(Invoke(id=f"i{place}", workflow=child, timeout_ms=timeout_ms))
        else:
            steps.append(Send(id=f"n{place}", events=(SENT,) * rng.randint(1, 2)))
    return Workflow(
        name=f"upper-{level}-{number}",
        steps=tuple(steps),
        retries=rng.choice((1, 2, 3)),
        limits=_limits(rng),
        triggers={name: rng.choice((None, 4)) for name in OUTSIDE if rng.random() < 0.4},
        timeout_ms=_timeout(rng),
        once_per_n=rng.random() < 0.2,
        cancelled_by=STOP if rng.random() < 0.4 else None,
        cancel_within_ms=rng.choice((None, 60_000)),
        checkpoint=_checkpoint(rng),
        beside=_beside(rng, steps),
    )


def _beside(rng: random.Random, steps: Sequence[Step]) -> frozenset[str]:
    """Steps that are started together with the one before. Code that stumbles does so alone."""
    stumbling = {step.id for step in steps if isinstance(step, Work) and step.stumbles}
    pairs = [(before.id, step.id) for before, step in pairwise(steps) if not stumbling & {before.id, step.id}]
    return frozenset(id for _, id in pairs if rng.random() < 0.4)


def _own_step(rng: random.Random, place: int) -> Step:
    kind = rng.random()
    if kind < 0.2:
        return Nap(id=f"s{place}", ms=rng.choice((0, 1_000, _MINUTE_MS, _HOUR_MS)))
    id = f"r{place}"
    if kind < 0.55:
        return Work(id=id, slow=rng.random() < 0.4)
    if kind < 0.7:
        return Work(
            id=id,
            failures=rng.choice((1, 1, 2)),
            slow=rng.random() < 0.2,
            own_attempts=rng.choice((None, None, 1, 3)),
            retry_after_ms=rng.choice((None, None, 0, 300_000)),
        )
    if kind < 0.8:
        return Work(id=id, stumbles=1)
    return Work(id=id, fails=True, non_retriable=rng.random() < 0.6, fatal=rng.random() < 0.3)


def _await(rng: random.Random, place: int) -> Await:
    event = rng.choice((*OUTSIDE, *OUTSIDE, SENT, rng.choice(_RUN_ENDS)))
    of_the_platform = event in _RUN_ENDS  # whose data is not ours
    return Await(
        id=f"e{place}",
        event=event,
        matched=not of_the_platform and rng.random() < 0.6,
        above=None if of_the_platform else rng.choice((None, None, 4)),
        timeout_ms=rng.choice((1_000, _MINUTE_MS, _HOUR_MS, 24 * _HOUR_MS)),
        lookback=rng.choice((None, None, "run", "10m")),
    )


def _limits(rng: random.Random) -> tuple[Limit, ...]:
    if rng.random() < 0.5:
        return ()
    return tuple(Limit(limit=rng.randint(1, 2), keyed=rng.random() < 0.5) for _ in range(rng.randint(1, 2)))


def _timeout(rng: random.Random) -> int | None:
    return rng.choice((None, None, None, None, 30 * _MINUTE_MS))


def _checkpoint(rng: random.Random) -> int | None:
    return rng.choice((None, None, 2, 5))
