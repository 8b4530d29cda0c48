"""Throw-away homes for embedded servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from services.embedded.home import Home, temporary_folder

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30


@contextmanager
def temporary_home(prefix: str, *, in_memory: bool = False) -> Iterator[Home]:
    """A home in the temp folder, gone afterwards; `in_memory` where the machine has the room for it."""
    with temporary_folder(prefix, _MEMORY if in_memory and _has_room() else None) as folder:
        yield Home(folder)


def _has_room() -> bool:
    """Whether the machine has a file system in memory for a server's data, and for the programs that root copies."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return os.access(_MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _ROOM
