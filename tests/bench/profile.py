"""Where the services' time goes: py-spy beside a workload, and its samples as a list of functions."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.stack import BenchStack

_RATE_HZ = 60
_TOP = 30
_WAITING = ("epoll_wait", "epoll_pwait")
_THREAD = "Thread._bootstrap"
_LOOP = "Runner.run"


@dataclass(frozen=True, slots=True)
class Profile:
    """Busy samples of a process's main thread: function → how many were in it (`own`), or below it (`total`)."""

    samples: int
    own: Counter[str]
    total: Counter[str]

    def markdown(self, top: int = _TOP) -> str:
        """Two tables, in percent of the samples."""
        parts = []
        for title, counts in (("own", self.own), ("with what it calls", self.total)):
            rows = [f"| {100 * count / self.samples:.1f} | `{name}` |" for name, count in counts.most_common(top)]
            parts.append("\n".join([f"| % {title} | function |", "| --- | --- |", *rows]))
        return "\n\n".join(parts)


def read_profile(lines: Iterable[str]) -> Profile:
    """What collapsed stacks (`frame;frame;frame count`) say.

    Time in C belongs to the Python function that called it; below the event loop itself, to the C function. Threads
    other than the main one do next to nothing in our services and are left out, as are samples that wait for events.
    """
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    samples = 0
    for line in lines:
        stack, _, count_text = line.rpartition(" ")
        frames, count = stack.split(";"), int(count_text)
        if frames[-1].partition(" ")[0] in _WAITING or any(frame.startswith(_THREAD) for frame in frames):
            continue
        samples += count
        own[_owner(frames)] += count
        for frame in {_short(frame) for frame in frames if _is_python(frame)}:
            total[frame] += count
    return Profile(samples, own, total)


@asynccontextmanager
async def profiling(stack: BenchStack, folder: Path, name: str, duties: Iterable[str]) -> AsyncIterator[None]:
    """Samples processes of the stack during the block; `<folder>/<name>-<duty>.txt` has their collapsed stacks.

    Raises FileNotFoundError without py-spy. What is measured meanwhile is slower: no figures for a table.
    """
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}") or shutil.which("py-spy")
    if program is None:
        raise FileNotFoundError("profiles need py-spy: .venv/bin/pip install py-spy")
    spies = []
    for duty, pid in _targets(stack, duties):
        output = folder / f"{name}-{duty}.txt"
        spies.append(
            await asyncio.create_subprocess_exec(
                program, "record", "--pid", str(pid), "--native", "--format", "raw", "--rate", str(_RATE_HZ),
                "--output", str(output), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            )
        )  # fmt: skip
    try:
        yield
    finally:
        for spy in spies:
            if spy.returncode is None:
                spy.send_signal(signal.SIGINT)
            await spy.wait()


def _targets(stack: BenchStack, duties: Iterable[str]) -> Iterator[tuple[str, int]]:
    pids = stack.pids()
    for duty in duties:
        for pid in pids.get(duty, ()):
            yield duty, pid


def _is_python(frame: str) -> bool:
    return ".py:" in frame


def _owner(frames: list[str]) -> str:
    place = max((place for place, frame in enumerate(frames) if _is_python(frame)), default=0)
    if not frames[place].startswith(_LOOP):
        return _short(frames[place])
    named = [frame.partition(" (")[0] for frame in frames[place + 1 :] if not frame.startswith("0x")]
    return f"event loop: {named[-1]}" if named else "event loop"


def _short(frame: str) -> str:
    """`name (file:line)` without the line and the folders that all frames share."""
    name, _, place = frame.partition(" (")
    file = place.rstrip(")").rpartition(":")[0]
    for marker in ("site-packages/", "/lib/python3", "services/"):
        if marker in file:
            file = file.partition(marker)[2] if marker != "services/" else marker + file.partition(marker)[2]
            break
    return f"{name} ({file})" if file else name
