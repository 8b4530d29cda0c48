"""Dying with the parent, on every platform: the parent holds the other end of our stdin, and its death closes it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping

PARENT_PIPE = "RUNR_PARENT_PIPE"


def on_parent_death(environ: Mapping[str, str], act: Callable[[], object]) -> None:
    """Calls `act`, in a thread, when the parent is gone. Does nothing unless the parent has set RUNR_PARENT_PIPE."""
    if not environ.get(PARENT_PIPE):
        return

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            continue
        act()

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()
