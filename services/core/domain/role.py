"""The built-in roles: what each may do, and who may give or take which (engine section 4)."""

from __future__ import annotations

from collections.abc import Mapping

OWNER = "owner"
ADMIN = "admin"
DEVELOPER = "developer"
VIEWER = "viewer"

_ALL = ("events.send", "workflows.manage", "workflows.run", "workflows.view")

ROLES: Mapping[str, tuple[str, ...]] = {
    OWNER: _ALL,
    ADMIN: _ALL,
    DEVELOPER: _ALL,
    VIEWER: ("workflows.view",),
}
"""Role → abilities, the highest role first."""

_HEIGHT = {role: -depth for depth, role in enumerate(ROLES)}


def may_give(giver_role: str, giver_abilities: frozenset[str], role: str) -> bool:
    """Whether somebody may make another one a `role`: it is not higher than their own, and holds nothing that they
    lack here. A token that was given less than its user holds gives less.
    """
    return _HEIGHT[role] <= _HEIGHT[giver_role] and giver_abilities.issuperset(ROLES[role])


def may_touch(actor_role: str, role: str) -> bool:
    """Whether somebody may change or take away what a `role` has: only of those who are not above them."""
    return _HEIGHT[role] <= _HEIGHT[actor_role]
