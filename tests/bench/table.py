"""The table for people: figures beside targets and peers, and what each process cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.bench.contender import OURS
from tests.bench.figures import Line
from tests.bench.targets import ROWS, Row

_NONE = "–"


def results(lines: Sequence[Line]) -> str:
    """A Markdown table: one row a figure, one column a contender; ratios to the best peer where there are peers."""
    contenders = list(dict.fromkeys((line.engine, line.transport) for line in lines))
    ours = [transport for engine, transport in contenders if engine == OURS]
    peers = [engine for engine, _ in contenders if engine != OURS]
    head = ["", "figure", *(f"RunR, {transport}" for transport in ours), "target", "met", *peers]
    if peers:
        head += [f"{transport} to best peer" for transport in ours]
    rows = [row for row in ROWS if any(row.find(lines, *each) is not None for each in contenders)]
    return markdown(head, [_cells(row, lines, ours, peers) for row in rows])


def costs(lines: Sequence[Line]) -> str:
    """A Markdown table of CPU per operation and memory by process, one row a workload and contender."""
    shown = [line for line in lines if line.metric in ("cpu_us_per_op", "peak_mb", "pss_mb")]
    processes = list(dict.fromkeys(str(line.labels["process"]) for line in shown if "process" in line.labels))
    found: dict[tuple[str, ...], dict[str, Line]] = {}
    for line in shown:
        what = "CPU, us/op" if line.metric == "cpu_us_per_op" else "memory, MiB"
        mode = f" {line.labels['mode']}" if "mode" in line.labels else ""
        place = (f"{line.workload}{mode}", " ".join(filter(None, (line.engine, line.transport))), what)
        found.setdefault(place, {})[str(line.labels["process"])] = line
    rows = [
        [*place, *(number(by[process].value, 0) if process in by else _NONE for process in processes)]
        for place, by in found.items()
    ]
    return markdown(["workload", "contender", "what", *processes], rows) if rows else ""


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns line up in plain text too."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(row[place]) for row in table) for place in range(len(head))]
    written = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in table
    ]
    written.insert(1, "| " + " | ".join("-" * max(3, width) for width in widths) + " |")
    return "\n".join(written)


def number(value: float, digits: int) -> str:
    """A number as people read it: 12,345.6."""
    return f"{value:,.{digits}f}"


def _cells(row: Row, lines: Sequence[Line], ours: Sequence[str], peers: Sequence[str]) -> list[str]:
    own = {transport: row.find(lines, OURS, transport) for transport in ours}
    theirs = {peer: row.find(lines, peer, "") for peer in peers}
    best = row.best(value for value in theirs.values() if value is not None)
    cells = [row.workload, f"{row.title}, {row.unit}", *(_shown(value, row) for value in own.values())]
    cells += [_target(row, ours), _met(row, own, best), *(_shown(value, row) for value in theirs.values())]
    if peers:
        cells += [_ratio(row, value, best) for value in own.values()]
    return cells


def _shown(value: float | None, row: Row) -> str:
    return _NONE if value is None else number(value, row.digits)


def _target(row: Row, ours: Sequence[str]) -> str:
    sign = "≥" if row.more_is_better else "≤"
    bounds = [number(row.bounds[each], _digits(row.bounds[each])) for each in ours if each in row.bounds]
    return f"{sign} {' / '.join(dict.fromkeys(bounds))}" if bounds else _NONE


def _digits(bound: float) -> int:
    return 0 if bound == int(bound) else 1


def _met(row: Row, own: dict[str, float | None], best: float | None) -> str:
    words = []
    for transport, value in own.items():
        verdict = None if value is None else row.is_met(value, transport)
        if value is not None and best is not None and transport in row.ratios:
            ratio = row.ratio(value, best)
            verdict = bool(verdict) and ratio is not None and ratio >= row.ratios[transport]
        words.append(_NONE if verdict is None else "yes" if verdict else "NO")
    return " / ".join(dict.fromkeys(words)) if words else _NONE


def _ratio(row: Row, value: float | None, best: float | None) -> str:
    ratio = None if value is None or best is None else row.ratio(value, best)
    return _NONE if ratio is None else f"{ratio:.1f}×"
