"""`make bench`: the workloads, medians of some runs, JSON lines as they come and a table at the end.

    python -m tests.bench [--only W1,W2] [--transport http] [--runs 3] [--asleep 100000] [--peers restate-ts,…|all]
        [--profile DIR --profiled executor,gateway]

The exit code is 1 when a run failed. Nothing here judges a figure: the table says which targets are met.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import uvloop

from tests.bench import table
from tests.bench.contender import Contender, Ours
from tests.bench.figures import Figure, Line, lines_of
from tests.bench.kit.contender import Kits
from tests.bench.peers.catalogue import PEERS, prepared
from tests.bench.profile import read_profile
from tests.bench.stack import SERVICES
from tests.bench.transport import TRANSPORTS
from tests.bench.workloads.catalogue import workloads

BUILD = Path(__file__).resolve().parents[2] / "build" / "bench"

_RUN_S = 300.0
_ASLEEP = 100_000


def parser() -> argparse.ArgumentParser:
    """The options."""
    known = workloads(asleep=_ASLEEP)
    usual = [name for name, workload in known.items() if not workload.strain]
    strain = [name for name, workload in known.items() if workload.strain]
    top = argparse.ArgumentParser(
        prog="python -m tests.bench", description="Benchmark the engine, and peers beside it."
    )
    only = _names([*usual, *strain], strain=strain)
    shown = f"these of {', '.join(usual)}, and, measured only on demand, {', '.join(strain)} (`strain`: all these)"
    top.add_argument("--only", type=only, default=usual, metavar="W1,W2", help=shown)
    top.add_argument("--transport", type=_names(list(TRANSPORTS)), default=list(TRANSPORTS), metavar="http,stream")
    top.add_argument("--runs", type=int, default=3, help="runs of each workload; a figure is their median")
    top.add_argument("--asleep", type=int, default=_ASLEEP, metavar="N", help="sleeping runs of W6")
    top.add_argument("--peers", type=_names(list(PEERS)), default=[], metavar="all|a,b", help="and these peers")
    top.add_argument("--profile", type=Path, metavar="DIR", help="profile the services with py-spy, which slows them")
    top.add_argument("--profiled", type=_names([*SERVICES, "function"]), default=["executor"], help="these processes")
    top.add_argument(
        "--limit", type=float, default=_RUN_S, metavar="S", help="seconds a run may take; W6 has four times as many"
    )
    return top


def _names(known: Sequence[str], **groups: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads a list of known names, `all` of them, or a group."""

    def read(text: str) -> list[str]:
        given = list({"all": known, **groups}.get(text, text.split(",")))
        unknown = set(given) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not among {', '.join(known)}")
        return given

    return read


class Bench:
    """One invocation. Runs go round the contenders, so that all meet the same noise."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.known = workloads(asleep=given.asleep)
        self.lines: list[Line] = []
        self.failed = False

    async def run(self) -> int:
        """Everything that was asked for; the exit code."""
        given = self.given
        contenders: list[Contender] = [
            Ours(transport, self.known, given.profile, tuple(given.profiled)) for transport in given.transport
        ]
        contenders.append(Kits())
        contenders += await prepared(given.peers, BUILD, asleep=given.asleep, say=_say)
        for workload in given.only:
            found = await self._measure(workload, [each for each in contenders if workload in each.workloads()])
            self.lines += found
            for line in found:
                print(line.json(), flush=True)
        return int(self.failed)

    async def _measure(self, workload: str, contenders: Sequence[Contender]) -> list[Line]:
        runs: list[list[list[Figure]]] = [[] for _ in contenders]
        for number in range(self.given.runs):
            for contender, figures in zip(contenders, runs, strict=True):
                name = " ".join(filter(None, (contender.engine, contender.transport)))
                _say(f"{workload} ({self.known[workload].title}): {name}, run {number + 1} of {self.given.runs}")
                figures += await self._one_run(workload, contender)
        return [
            line
            for contender, figures in zip(contenders, runs, strict=True)
            for line in lines_of(contender.engine, workload, contender.transport, figures)
        ]

    async def _one_run(self, workload: str, contender: Contender) -> list[list[Figure]]:
        """One run's figures in a list, which is empty when it failed."""
        try:
            async with asyncio.timeout(self.given.limit * (4 if workload == "W6" else 1)):
                return [await contender.measure(workload)]
        except Exception as error:
            self.failed = True
            _say(f"this run failed: {_reason(error)}")
            return []


def _report(given: argparse.Namespace, lines: Sequence[Line], load: float) -> None:
    if not lines:
        return  # what was measured before is worth more
    BUILD.mkdir(parents=True, exist_ok=True)
    text = f"{_machine()}, load {load:.1f} before\n\n{table.results(lines)}\n\n{table.costs(lines)}\n"
    (BUILD / "last.jsonl").write_text("".join(f"{line.json()}\n" for line in lines))
    (BUILD / "last.md").write_text(text)
    print(f"\n{text}")
    for stacks in sorted(given.profile.glob("*.txt")) if given.profile else ():
        print(f"### {stacks.stem}\n\n{read_profile(stacks.read_text().splitlines()).markdown()}\n")


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} CPUs, {memory:.0f} GiB, Linux {platform.release()}, Python {platform.python_version()}"


def _reason(error: BaseException) -> str:
    """The first error of a group, and what was noted on the way."""
    notes = list(getattr(error, "__notes__", ()))
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        notes += getattr(error, "__notes__", ())
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in last)
    return "\n".join([f"{type(error).__name__}: {error}{place}", *notes])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    given = parser().parse_args(argv)
    if given.profile:
        given.profile.mkdir(parents=True, exist_ok=True)
    bench, load = Bench(given), os.getloadavg()[0]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(bench.run())
    _report(given, bench.lines, load)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
