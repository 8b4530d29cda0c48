"""The smallest service there can be, to test the process around it: `python -m tests.support.plain_service`.

It notes `started` and `drained` in the file that PLAIN_NOTES names, and may refuse to end its drain (PLAIN_STUCK).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from services.core.runtime import parse
from services.core.runtime.config import setting
from services.core.runtime.lifecycle import Component
from services.core.runtime.service import Runtime, run_service


@dataclass(frozen=True)
class Settings:
    """Where to write notes, and how to misbehave: `drain` never ends, or the `loop` itself hangs."""

    notes: str = setting("PLAIN_NOTES", parse.text)
    stuck: str = setting("PLAIN_STUCK", parse.choice("drain", "loop"), "")


class Notes(Component):
    """Writes down its life."""

    name = "notes"

    def __init__(self, settings: Settings) -> None:
        self._path = Path(settings.notes)
        self._stuck = settings.stuck

    async def start(self) -> None:
        self._note("started")

    async def drain(self) -> None:
        if self._stuck == "drain":
            await asyncio.Event().wait()
        if self._stuck == "loop":
            time.sleep(3_600)
        self._note("drained")

    def _note(self, what: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{what} {os.getpid()}\n")


def build(settings: Settings, runtime: Runtime) -> list[Component]:
    """One component."""
    return [Notes(settings)]


if __name__ == "__main__":
    sys.exit(run_service({"plain": sys.modules[__name__]}, os.environ))
