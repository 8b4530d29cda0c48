"""Throw-away homes for embedded servers."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from services.embedded.home import PORTS, Home, temporary_folder

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30
_WORKERS_PORTS = range(8_000, PORTS.start)
_SERVERS = ("postgres", "nats")
_SERVICES = ("gateway", "ingest", "scheduler", "executor")


@contextmanager
def temporary_home(prefix: str, *, in_memory: bool = False) -> Iterator[Home]:
    """A home in the temp folder, gone afterwards; `in_memory` where the machine has the room for it."""
    if in_memory:
        _clear_leftovers()
    with temporary_folder(prefix, _MEMORY if in_memory and _has_room() else None) as folder:
        home = Home(folder, _ports())
        for name in _SERVERS:
            home.port(name)
        yield home


@contextmanager
def dev_home() -> Iterator[Home]:
    """A home for `runr dev`, with all the ports that it would choose by itself."""
    with temporary_home("dev") as home:
        for name in ("api", *_SERVICES, *(f"{service}-health" for service in _SERVICES)):
            home.port(name)
        yield home


def _ports() -> range:
    """Each worker of pytest-xdist has ports of its own: one is free until it is listened on, and chosen long before."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return PORTS
    share = len(_WORKERS_PORTS) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    place = int(worker.removeprefix("gw"))
    return _WORKERS_PORTS[place * share : (place + 1) * share]


def _clear_leftovers() -> None:
    """Remove what killed sessions have left in memory: homes whose keeper has gone, and with it their lock."""
    for lock in _MEMORY.glob("runr-*/lock"):
        with suppress(OSError), lock.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _has_room() -> bool:
    """Whether the machine has a file system in memory for a server's data, and for the programs that root copies."""
    try:
        found = os.statvfs(_MEMORY)
    except OSError:
        return False
    return os.access(_MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _ROOM
