"""Who calls, and what callers may do (engine section 4)."""

from __future__ import annotations

from dataclasses import dataclass

WORKFLOWS_VIEW = "workflows.view"
WORKFLOWS_MANAGE = "workflows.manage"
WORKFLOWS_RUN = "workflows.run"
EVENTS_SEND = "events.send"


@dataclass(frozen=True, slots=True)
class Caller:
    """A known caller, bound to one tenant. `abilities` are of the four above."""

    tenant: int
    token_id: str
    abilities: frozenset[str]
