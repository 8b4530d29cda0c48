"""Which of its two I/O layers gRPC uses: has to be chosen before it is imported (decision 0006 of the engine)."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import MutableMapping
from pathlib import Path

VARIABLE = "GRPC_EXPERIMENTS"

_POLLED_BY_US = "-event_engine_client,-event_engine_listener"
_HAS_BOTH = range(80, 86)
"""Minor versions of gRPC 1 that know the choice; to others its name would be an unknown word."""


def poll_ourselves(environ: MutableMapping[str, str]) -> None:
    """Have the thread that waits for gRPC's results do its I/O too, where gRPC offers that and nobody has chosen.

    The other layer hands each message on between threads of its own: a round trip takes half as long again, and costs
    half as much CPU again.
    """
    if _minor_version() in _HAS_BOTH:
        environ.setdefault(VARIABLE, _POLLED_BY_US)


def _minor_version() -> int | None:
    """That of gRPC 1, without importing it, and without the package index, which takes longer than all the rest."""
    spec = importlib.util.find_spec("grpc")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        told = Path(folder, "_grpcio_metadata.py")
        found = re.search(r"\b1\.(\d+)\.", told.read_text()) if told.is_file() else None
        if found is not None:
            return int(found[1])
    return None
