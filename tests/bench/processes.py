"""What processes cost: CPU seconds and memory (PSS), by the names of their duties. Linux only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.bench.figures import Figure

_TICKS = os.sysconf("SC_CLK_TCK")
_MIB = 1024.0  # in the KiB of smaps_rollup

Pids = Mapping[str, list[int]]
"""Duty → the processes that do it now."""


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of the children that it has waited for; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS


def pss_mb(pid: int) -> float:
    """Memory in MiB, shared pages divided by the processes that share them; 0 when the process is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / _MIB
    except (OSError, StopIteration):
        return 0.0


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for parent in found:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
        found += children
    return found


def command_of(pid: int) -> list[str]:
    """The words of a process's command line, [] when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def memory_mb(pids: Pids) -> dict[str, float]:
    """Duty → memory of its processes together."""
    return {duty: sum(pss_mb(pid) for pid in members) for duty, members in pids.items()}


class Meter:
    """Measures the block that it is entered for. `find` says which processes there are, at its start and its end.

    Memory is looked at once, at the end: reading the page tables of Postgres takes longer than many a workload's step.
    """

    def __init__(self, find: Callable[[], Pids]) -> None:
        self._find = find
        self._before: dict[int, float] = {}
        self._cpu: dict[str, float] = {}
        self._memory: dict[str, float] = {}
        self.began = 0.0
        self.wall_s = 0.0

    def __enter__(self) -> Self:
        self._before = {pid: cpu_seconds(pid) for members in self._find().values() for pid in members}
        self.began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wall_s = time.perf_counter() - self.began
        pids = self._find()
        self._cpu = {
            duty: sum(cpu_seconds(pid) - self._before.get(pid, 0.0) for pid in members)
            for duty, members in pids.items()
        }
        self._memory = memory_mb(pids)

    def figures(self, operations: int = 0) -> list[Figure]:
        """CPU seconds and peak memory of each duty; with `operations` also the CPU microseconds of one."""
        found = [Figure("cpu_s", spent, "s", {"process": duty}) for duty, spent in self._cpu.items()]
        if operations:
            found += [
                Figure("cpu_us_per_op", spent / operations * 1e6, "us", {"process": duty})
                for duty, spent in self._cpu.items()
            ]
            found.append(Figure("cpu_us_per_op", sum(self._cpu.values()) / operations * 1e6, "us", {"process": "all"}))
        found += [Figure("peak_mb", held, "MiB", {"process": duty}) for duty, held in self._memory.items()]
        return found

    def percent(self, duties: set[str]) -> float:
        """The share of one core that some duties took together."""
        return sum(spent for duty, spent in self._cpu.items() if duty in duties) / self.wall_s * 100
