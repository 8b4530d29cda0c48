"""What a supervisor tells a process that it starts: how it calls it, and which ended processes it replaces.

A supervisor is the parent of what it starts and has waited for what has ended, so it knows of the end, at once and for
certain. Others can only conclude it, from silence (rulings C19). The names are random and never used again: neither a
host's name nor a pid that is given out anew can make a living process look like one that has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

_PROCESS = "RUNR_PROCESS"
_REPLACES = "RUNR_REPLACES"


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """This process in its supervisor's words. `name` None: nobody supervises it."""

    name: UUID | None = None
    replaces: tuple[UUID, ...] = ()


UNSUPERVISED = SupervisedProcess()


def supervised_process(environ: Mapping[str, str]) -> SupervisedProcess:
    """What the supervisor has told in the environment. Raises ValueError."""
    name = environ.get(_PROCESS)
    return SupervisedProcess(
        None if not name else UUID(name), tuple(UUID(each) for each in environ.get(_REPLACES, "").split(",") if each)
    )


def supervised_environ(name: UUID, replaces: Sequence[UUID]) -> dict[str, str]:
    """How a supervisor tells it; also instead of what it was told itself."""
    return {_PROCESS: str(name), _REPLACES: ",".join(map(str, replaces))}
