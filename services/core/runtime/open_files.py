"""How many sockets a service may have open: what the machine allows, not the few that shells begin with."""

from __future__ import annotations

import resource


def allow_open_files() -> int:
    """Raise this process's soft limit of open files to its hard limit; the limit that holds then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
