"""Who calls, and what callers may do (engine section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from services.core.domain.role import OWNER

WORKFLOWS_VIEW = "workflows.view"
WORKFLOWS_MANAGE = "workflows.manage"
WORKFLOWS_RUN = "workflows.run"
EVENTS_SEND = "events.send"


@dataclass(frozen=True, slots=True)
class Caller:
    """A known caller, bound to one tenant. `abilities` are of the four above: what the token was given of what its
    user's role holds here.

    Somebody who has signed in and has no tenant is in tenant 0, without a role or an ability.

    `user_id` is None for a token of the installation, whose role is an owner's. `token_id` is the session's where the
    caller `signed_in`. All ids are ULIDs as text, but that of an operator, who is nobody's token.
    """

    tenant: int
    token_id: str
    abilities: frozenset[str]
    role: str = OWNER
    user_id: str | None = None
    email: str = ""
    signed_in: bool = False
