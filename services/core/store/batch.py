"""Turn commit items into the arrays of one statement, and statement rows into results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from services.core.store.commit_item import AttemptRow, CommitItem, EndRow, MarkRow, StartRow, StepRow, WaitRow

Columns = list[list[Any]]


def columns(rows: Sequence[tuple[Any, ...]], width: int) -> Columns:
    """Rows to one list a column; `width` empty lists when there are no rows."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def narrowed(whole: Columns) -> Columns:
    """The columns, but one value of each that holds the same everywhere: most do, and each value costs the driver and
    Postgres as much as the next. For doors that make them whole again (`rt.spread`), as long as the first, which stays.
    """
    first, *others = whole
    return [first, *map(_narrow, others)]


def _narrow(column: list[Any]) -> list[Any]:
    if len(column) > 1 and column[0] == column[-1] and column.count(column[0]) == len(column):
        return column[:1]
    return column


def prepared(owner: int, items: Sequence[CommitItem], *, now_s: float) -> tuple[str, list[Any]]:
    """The statement these items need, with its arguments. It is sent at `now_s` by the monotonic clock.

    Most batches hold nothing but results and ends, and most others runs that also come to rest.
    """
    if all(map(_is_light, items)):
        return _LIGHT_STATEMENT, _light_arguments(owner, items)
    if all(map(_stands_alone, items)):
        return _RESTS_STATEMENT, _rests_arguments(owner, items, now_s)
    return _statement(items), _arguments(owner, items, now_s)


def _statement(items: Sequence[CommitItem]) -> str:
    full = any(item.wait_rows or item.start_rows for item in items)
    count = 1 + _PLAIN + (_WAITS + _STARTS if full else 0)
    name = "commit_full_v1" if full else "commit_v1"
    return _call(name, count)


def _arguments(owner: int, items: Sequence[CommitItem], now_s: float) -> list[Any]:
    heads = [
        (
            item.run,
            item.epoch,
            item.rev,
            item.mail,
            item.keep or item.end_row is not None,  # an ending run is held until its row goes
            "x" if item.executing else item.st,
            item.steps,
            item.size,
            item.fn_att,
            item.nd,
            len(item.attempt_rows),
            item.uses,
            *((None, None) if item.end_row is not None else (*item.gates, None, None)[:2]),
        )
        for item in items
    ]
    ends = [item.end_row for item in items if item.end_row is not None]
    args: list[Any] = [owner]
    args += columns(heads, _HEAD)
    args += columns(_flat(item.step_rows for item in items), len(StepRow._fields))
    args += columns(_flat(item.attempt_rows for item in items), len(AttemptRow._fields))
    args += columns(ends, len(EndRow._fields))
    args += columns(_flat(item.mark_rows for item in items), len(MarkRow._fields))
    waits = _flat(item.wait_rows for item in items)
    starts = _flat(item.start_rows for item in items)
    if waits or starts:
        args += columns(waits, len(WaitRow._fields))
        args.append([_gone_ms(item, row, now_s) for item in items for row in item.wait_rows])
        args += columns(starts, _STARTS)
    return args


def _gone_ms(item: CommitItem, row: WaitRow, now_s: float) -> int:
    """How much of a wait is over when it is stored: a sleep lasts from when the function asked for it. A backoff lasts
    from when the attempt that failed is stored, which is when that ended for whoever looks at it.
    """
    return 0 if item.told_s is None or row.kind == "b" else min(int((now_s - item.told_s) * 1_000), _MOST_GONE_MS)


def delayed(item: CommitItem, gone_s: float) -> CommitItem:
    """The item of which the results came so long ago, as when Postgres was away: what they tell of began before that,
    and not just as long before the commit as it took.
    """
    gone_ms = int(gone_s * 1_000)
    return replace(
        item,
        step_rows=tuple(row._replace(ms=min(row.ms + gone_ms, _MOST_GONE_MS)) for row in item.step_rows),
        attempt_rows=tuple(row._replace(ms=min(row.ms + gone_ms, _MOST_GONE_MS)) for row in item.attempt_rows),
    )


def _light_arguments(owner: int, items: Sequence[CommitItem]) -> list[Any]:
    """Rows as they are: `rt.head_row`, `rt.step_row` and `rt.end_row`."""
    return [
        owner,
        [
            (item.run, item.epoch, item.rev, item.steps, item.size, item.fn_att, item.nd, item.uses)
            for item in items
            if item.end_row is None
        ],
        _flat(item.step_rows for item in items),
        _end_rows(items),
    ]


def _end_rows(items: Sequence[CommitItem]) -> list[tuple[Any, ...]]:
    return [
        (item.run, item.epoch, item.rev, item.steps, item.size, item.uses, len(item.attempt_rows), *item.end_row[1:])
        for item in items
        if item.end_row is not None
    ]


def _rests_arguments(owner: int, items: Sequence[CommitItem], now_s: float) -> list[Any]:
    """Rows as they are: `rt.rest_row` and others. Then what there is to know of the waits, once: of which tenants they
    are, in their order, and how many of each; whether one looks back as far as its run goes; and the paths on which
    they are found.
    """
    waits = [(*row, _gone_ms(item, row, now_s)) for item in items for row in item.wait_rows]
    tenants = Counter(map(_TENANT, waits))
    if len(tenants) > 1:
        order = {tenant: place for place, tenant in enumerate(tenants)}
        waits.sort(key=lambda wait: order[_TENANT(wait)])
    rows = _flat(item.wait_rows for item in items)
    paths = {(row.tenant, row.name_h, row.path, row.path_h) for row in rows if row.path is not None}
    return [
        owner,
        [_rest_row(item) for item in items if item.end_row is None],
        _flat(item.step_rows for item in items),
        _flat(item.attempt_rows for item in items),
        _end_rows(items),
        waits,
        list(tenants),
        list(tenants.values()),
        any(row.lookback_ms == -1 for row in rows),
        *columns(list(paths), 4),
    ]


def _rest_row(item: CommitItem) -> tuple[Any, ...]:
    return (
        item.run,
        item.epoch,
        item.rev,
        item.mail,
        None if item.keep else item.st,
        item.steps,
        item.size,
        item.fn_att,
        item.nd,
        len(item.attempt_rows),
        item.uses,
        not item.keep or _is_counted(item),
    )


def _stands_alone(item: CommitItem) -> bool:
    """Whether the commit has to do with no gate, no other run and no mark."""
    return not (item.gates or item.start_rows or item.mark_rows)


def _is_counted(item: CommitItem) -> bool:
    """Whether what the run has used is counted though it goes on: now and then, so that a long run's is."""
    return item.rev % _COUNTED_EVERY == _COUNTED_EVERY - 1


def _is_light(item: CommitItem) -> bool:
    """Whether the run goes on or ends, stands behind no gate, and there is nothing but results to store.

    What it has used is not counted with it, so that not all commits of a long run are such.
    """
    return (
        (item.keep or item.end_row is not None)
        and not (item.gates or item.attempt_rows or item.wait_rows or item.start_rows or item.mark_rows)
        and not _is_counted(item)
    )


def alone(owner: int, item: CommitItem) -> tuple[str, list[Any]] | None:
    """The statement for an item by itself, with its arguments, where it is what most commits are: one result of a run
    that goes on, or its end, behind no gate. It answers no row where it is not as simple as that.
    """
    if not _is_light(item):
        return None
    fence = (owner, item.run, item.epoch, item.rev)
    end = item.end_row
    if end is not None and not item.step_rows and end.status in _ENDS_ALONE:
        return "commit_end", [*fence, item.steps, item.size, item.uses, *end[1:]]
    if end is None and len(item.step_rows) == 1:
        return "commit_step", [*fence, item.size, item.fn_att, item.nd, item.uses, *item.step_rows[0][1:]]
    return None


def _flat(groups: Iterable[Sequence[Any]]) -> list[Any]:
    return [row for group in groups for row in group]


def _call(name: str, count: int) -> str:
    places = ", ".join(f"${n}" for n in range(1, count + 1))
    return f"select * from rt.{name}({places})"  # noqa: S608 - numbers only


_COUNTED_EVERY = 64
_TENANT: Callable[[Sequence[Any]], int] = itemgetter(WaitRow._fields.index("tenant"))
_ENDS_ALONE = frozenset(("completed", "failed"))  # others end the run's children as well
_MOST_GONE_MS = 2**31 - 1
_LIGHT_STATEMENT = _call("commit_steps_v1", 4)
_RESTS_STATEMENT = _call("commit_rests_v1", 13)
_HEAD = 14
_PLAIN = _HEAD + len(StepRow._fields) + len(AttemptRow._fields) + len(EndRow._fields) + len(MarkRow._fields)
_WAITS = len(WaitRow._fields) + 1
_STARTS = len(StartRow._fields)
