"""One of several processes of a service under one parent: which one it is, and where it says whether it is ready.

The parent tells both in the environment. Whoever is started alone has no slot.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

PROCESS_SLOT = "RUNR_PROCESS_SLOT"
HEALTH_SOCKET = "RUNR_HEALTH_SOCKET"


def process_slot(environ: Mapping[str, str]) -> int | None:
    """Which of its parent's processes this is, from 0; None for one that is alone."""
    given = environ.get(PROCESS_SLOT)
    return None if not given else int(given)


def health_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """The listening socket that the parent made for our health, which outlives us; None for a process alone."""
    given = environ.get(HEALTH_SOCKET)
    return None if not given else socket.socket(fileno=int(given))
