"""What a batch of accepted events leaves to be done and told."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from services.core.engine.accept_plan import AcceptRequest
from services.core.engine.accept_starts import Started
from services.core.engine.dedupe import Accepted
from services.core.engine.group_commit import Waiting
from services.core.engine.hit_runs import Aftermath

Item = Waiting[AcceptRequest, list[Accepted]]


@dataclass(slots=True)
class Outcome:
    """What an accepted batch leaves to be done and told."""

    answers: list[tuple[Item, list[Accepted]]] = field(default_factory=list)
    aftermath: Aftermath = field(default_factory=Aftermath)
    started: list[Started] = field(default_factory=list)
    followed: set[UUID] = field(default_factory=set)
    """Requests, by their accept ids, whose effects go on after the commit: they are answered when those are done."""
