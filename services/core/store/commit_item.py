"""What the holder of a run's lease wants to commit: one item per run, and the rows that go with it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

import msgspec


class StepRow(NamedTuple):
    """A memoized step. `output` and `error` are JSON text."""

    run: UUID
    tenant: int
    sid: str
    seq: int
    name: str
    kind: str
    status: str
    output: str | None
    error: str | None
    input: str | None
    att: int
    ms: int

    @property
    def unnamed(self) -> bool:
        """Whether the ids of the events that it has sent are not known yet."""
        return self.kind == "n" and self.status == "c" and self.output is None


class AttemptRow(NamedTuple):
    """A failed attempt; `sid` None = of the function. `n` counts within the run, `k` within the step.

    Over a worker's stream `epoch`, `inv` and `op` say which op of which invocation told it.
    """

    run: UUID
    tenant: int
    n: int
    sid: str | None
    k: int
    error: str
    note: str | None
    ms: int
    epoch: int | None = None
    inv: int | None = None
    op: int | None = None


class EndRow(NamedTuple):
    """The end of a run."""

    run: UUID
    status: str
    output: str | None
    error: str | None


class MarkRow(NamedTuple):
    """An effect that must follow the commit."""

    run: UUID
    tenant: int
    kind: str
    body: str


class WaitRow(NamedTuple):
    """An open wait, which is also the timer. `lookback_ms`: how far from the commit it looks back; -1: to when its run
    was created.
    """

    run: UUID
    tenant: int
    id: UUID
    kind: str
    seq: int
    sid: str | None
    name: str | None
    fields: str | None
    event: str | None
    name_h: int | None
    path: str | None
    path_h: int | None
    val_h: int | None
    cond: str | None
    child: UUID | None
    delay_ms: int | None
    at_ms: int | None
    arming: bool
    lookback_ms: int | None


class StartRow(NamedTuple):
    """A run to start."""

    id: UUID
    tenant: int
    wf: int
    project: int
    source: str
    event: UUID
    event_name: str
    event_ts: int | None
    event_data: str | None
    idem: str | None
    test: bool
    parent: UUID | None
    replay_of: UUID | None
    tags: str
    version: str
    trace: str | None
    max_att: int
    timeout_ms: int
    delay_ms: int | None
    at_ms: int | None
    prio: int
    gv: int
    ga: int | None
    gb: int | None


class CommitItem(msgspec.Struct, frozen=True, kw_only=True):
    """All that one commit changes of one run. `epoch` and `rev` are the fence, `mail` what the holder has seen.

    `gates`: the concurrency gates the run is in, in the order of the definition.

    `keep`: the lease goes on. Otherwise `st` is the letter of the status the run rests in. `executing`: steps of it are
    being executed, so a slot is kept although others wait for it. `steps`, `size` and `uses` are deltas. `told_s`: from
    when on by the monotonic clock the delays of its waits count, but of backoffs; None: from the commit on.
    """

    run: UUID
    tenant: int
    epoch: int
    rev: int
    mail: int
    keep: bool
    st: str
    executing: bool = False
    steps: int = 0
    size: int = 0
    fn_att: int = 0
    nd: int = 0
    uses: int = 0
    gates: tuple[int, ...] = ()
    step_rows: tuple[StepRow, ...] = ()
    attempt_rows: tuple[AttemptRow, ...] = ()
    wait_rows: tuple[WaitRow, ...] = ()
    start_rows: tuple[StartRow, ...] = ()
    mark_rows: tuple[MarkRow, ...] = ()
    end_row: EndRow | None = None
    told_s: float | None = None

    @property
    def weight(self) -> int:
        """About how many bytes travel with it."""
        weight = 300 * (1 + len(self.step_rows))
        for step in self.step_rows:
            weight += len(step.output or "") + len(step.error or "") + len(step.input or "")
        for start in self.start_rows:
            weight += len(start.event_data or "")
        for mark in self.mark_rows:
            weight += len(mark.body)
        if self.end_row is not None:
            weight += len(self.end_row.output or "") + len(self.end_row.error or "")
        return weight


class Committed(msgspec.Struct, frozen=True):
    """The commit happened. `mail` and `st` are the run's after it; `gate` the concurrency gate it belongs to, if
    any.
    """

    mail: int
    st: str
    gate: int | None

    @property
    def is_held(self) -> bool:
        """Whether the lease goes on."""
        return self.st in ("r", "y")

    @property
    def is_wanted(self) -> bool:
        """Whether it goes on only until nothing of the run is executed: others wait for its slot."""
        return self.st == "y"


class Fenced(Exception):
    """The run is not held by this lease any more: nothing was written; drop what is in memory."""


class StorageRefused(Exception):
    """The database refuses this very item (a value it cannot hold): nothing of it was written."""
