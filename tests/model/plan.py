"""Plans: what is done to the engine in one episode, drawn from a seed before anything runs.

A plan is a list of groups; the operations of a group are done at once. Which run an operation means is a share of those
that it could mean when its turn comes, so that a plan still makes sense with operations left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from tests.model.draw import CLOCKWORK, OUTSIDE, STOP, WATCHER, draw_workflows
from tests.model.script import Workflow

POINTS = ("before commit", "after commit", "before effects")
EXECUTORS = 2
SCHEDULERS = 2
WORKERS = 2
"""Of each tenant that has some."""
TENANTS = 2


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run over the API, `copies` times at once."""

    tenant: int
    workflow: str
    k: int
    x: int
    key: str | None = None
    delay_ms: int | None = None
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Emit:
    """Send events in one request, `copies` times at once. Each is a name, `k`, `x` and an id."""

    tenant: int
    events: tuple[tuple[str, int, int, str | None], ...]
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a run, its children too unless `keep`."""

    which: float
    keep: bool


@dataclass(frozen=True, slots=True)
class Retry:
    """Retry an ended run."""

    which: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Replay a run, from the start or from one of its steps."""

    which: float
    step: float | None


@dataclass(frozen=True, slots=True)
class SetActive:
    """Pause a workflow, or let it go on."""

    tenant: int
    workflow: str
    active: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    ms: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Schedulers do their duties, several at once."""

    schedulers: int


@dataclass(frozen=True, slots=True)
class LetGo:
    """Slow bodies go on, a share of them."""

    share: float


@dataclass(frozen=True, slots=True)
class Crash:
    """An executor dies as by kill -9: at once, or at a commit point, the `after`-th time it gets there."""

    executor: int
    point: str | None = None
    after: int = 1


@dataclass(frozen=True, slots=True)
class Bury:
    """The others declare a living executor dead."""

    executor: int


@dataclass(frozen=True, slots=True)
class Drain:
    """An executor stops in order, and starts again."""

    executor: int


@dataclass(frozen=True, slots=True)
class Cut:
    """The server drops all connections of an executor, or of ingest (None)."""

    executor: int | None


@dataclass(frozen=True, slots=True)
class Tear:
    """A worker loses its stream, and connects again, to any executor."""

    worker: int


@dataclass(frozen=True, slots=True)
class Fall:
    """A worker dies as by kill -9, and another takes its place."""

    worker: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A worker stops in order, and another takes its place."""

    worker: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Nothing more is done until the executors rest."""


Harm = Crash | Bury | Drain | Cut | Tear | Fall | Leave
Op = Start | Emit | Cancel | Retry | Replay | SetActive | Pass | Tick | LetGo | Harm | Settle
Transport = Literal["http", "stream", "both"]


@dataclass(frozen=True, slots=True)
class Plan:
    """An episode: workflows, groups of operations, and how badly hints are carried (share lost, doubled, late).

    `unheard` is the share lost of those that tell an executor to stop. `slots` are of each executor. `transports`: how
    the project of each tenant is served; `credits` are of each worker.
    """

    seed: int
    workflows: tuple[Workflow, ...]
    groups: tuple[tuple[Op, ...], ...]
    lost: float
    doubled: float
    late: float
    unheard: float
    slots: int
    transports: tuple[Transport, ...] = ("http", "http")
    credits: int = 64

    def only(self, kept: Collection[int]) -> Plan:
        """The plan with these operations alone, counted from 0 through all groups."""
        number = -1
        groups: list[tuple[Op, ...]] = []
        for group in self.groups:
            left = []
            for op in group:
                number += 1
                if number in kept:
                    left.append(op)
            groups += [tuple(left)] if left else []
        return replace(self, groups=tuple(groups))

    @property
    def size(self) -> int:
        """How many operations it has."""
        return sum(map(len, self.groups))

    def __str__(self) -> str:
        hints = f"{self.lost:g} lost, {self.doubled:g} doubled, {self.late:g} late, {self.unheard:g} unheard"
        served = f"{', '.join(self.transports)}, {self.credits} credits"
        lines = [f"seed {self.seed}: hints {hints}; {self.slots} slots; {served}"]
        lines += [f"  {workflow}" for workflow in self.workflows]
        lines += ["  " + " | ".join(map(str, group)) for group in self.groups]
        return "\n".join(lines)


def draw_plan(seed: int) -> Plan:
    """The episode of a seed: the same for the same seed, on every machine."""
    rng = random.Random(seed)
    workflows = draw_workflows(rng)
    calm = rng.random() < 0.3
    groups = []
    for _ in range(rng.randint(8, 20)):
        groups.append(_group(rng, workflows))
        if rng.random() < (1.0 if calm else 0.25):
            groups.append((Settle(),))
    bad = rng.choice((0.0, 0.3, 1.0))
    return Plan(
        seed,
        workflows,
        tuple(groups),
        lost=bad,
        doubled=0.0 if bad == 1 else 0.3,
        late=0.3,
        unheard=rng.choice((0.0, 0.5, 1.0)),
        slots=rng.choice((2, 8, 64)),
        transports=tuple(rng.choice(_TRANSPORTS) for _ in range(TENANTS)),
        credits=rng.choice((2, 8, 64)),
    )


def _group(rng: random.Random, workflows: tuple[Workflow, ...]) -> tuple[Op, ...]:
    if rng.random() < 0.07:
        tenant, workflow = rng.randrange(TENANTS), rng.choice(workflows).name
        return (SetActive(tenant, workflow, rng.random() < 0.5),)
    makers, weights = zip(*_WEIGHTS.items(), strict=True)
    return tuple(rng.choices(makers, weights)[0](rng, workflows) for _ in range(rng.randint(1, 5)))


def _start(rng: random.Random, workflows: tuple[Workflow, ...]) -> Op:
    names = [workflow.name for workflow in workflows if workflow.name not in (WATCHER, CLOCKWORK)]
    return Start(
        tenant=_tenant(rng),
        workflow=rng.choice(names),
        k=rng.randrange(3),
        x=rng.randrange(10),
        key=f"key-{rng.randrange(3)}" if rng.random() < 0.3 else None,
        delay_ms=rng.choice((0, 1_000, 300_000)) if rng.random() < 0.2 else None,
        copies=rng.choice((1, 1, 1, 2, 3)),
    )


def _emit(rng: random.Random, _: tuple[Workflow, ...]) -> Op:
    events = tuple(
        (
            rng.choice((*OUTSIDE, *OUTSIDE, *OUTSIDE, STOP)),
            rng.randrange(3),
            rng.randrange(10),
            f"id-{rng.randrange(8)}" if rng.random() < 0.4 else None,
        )
        for _ in range(rng.choice((1, 1, 1, 3)))
    )
    return Emit(_tenant(rng), events, rng.choice((1, 1, 2, 3)))


def _tenant(rng: random.Random) -> int:
    return 0 if rng.random() < 0.8 else 1


def _worker(rng: random.Random) -> int:
    return _tenant(rng) * WORKERS + rng.randrange(WORKERS)


def _pass(rng: random.Random, _: tuple[Workflow, ...]) -> Op:
    return Pass(rng.choice((0, 1_000, 2_500, 2_500, 70_000, 700_000)))


def _crash(rng: random.Random, _: tuple[Workflow, ...]) -> Op:
    point = rng.choice((None, *POINTS, *POINTS))
    return Crash(rng.randrange(EXECUTORS), point, rng.randint(1, 4))


_WEIGHTS: dict[Callable[[random.Random, tuple[Workflow, ...]], Op], float] = {
    _start: 5,
    _emit: 5,
    lambda rng, _: Cancel(rng.random(), rng.random() < 0.4): 1.2,
    lambda rng, _: Retry(rng.random()): 2,
    lambda rng, _: Replay(rng.random(), rng.random() if rng.random() < 0.6 else None): 0.7,
    _pass: 2.5,
    lambda rng, _: Tick(rng.randint(1, SCHEDULERS)): 3,
    lambda rng, _: LetGo(rng.choice((0.5, 1.0))): 1.5,
    _crash: 1.5,
    lambda rng, _: Bury(rng.randrange(EXECUTORS)): 0.3,
    lambda rng, _: Drain(rng.randrange(EXECUTORS)): 0.3,
    lambda rng, _: Cut(rng.choice((None, *range(EXECUTORS)))): 0.5,
    lambda rng, _: Tear(_worker(rng)): 1.5,
    lambda rng, _: Fall(_worker(rng)): 0.7,
    lambda rng, _: Leave(_worker(rng)): 0.3,
}
_TRANSPORTS: tuple[Transport, ...] = ("http", "stream", "stream", "both")
