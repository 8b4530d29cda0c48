"""The rules of roles, over all of them and all tokens that their users can have."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.role import ADMIN, DEVELOPER, OWNER, ROLES, VIEWER, may_give, may_touch

ABILITIES = ROLES[OWNER]
roles = st.sampled_from(list(ROLES))
subsets = st.frozensets(st.sampled_from(ABILITIES))


def test_the_built_in_roles() -> None:
    assert list(ROLES) == [OWNER, ADMIN, DEVELOPER, VIEWER]
    assert set(ABILITIES) == {"workflows.view", "workflows.manage", "workflows.run", "events.send"}
    assert ROLES[OWNER] == ROLES[ADMIN] == ROLES[DEVELOPER]
    assert ROLES[VIEWER] == ("workflows.view",)


@given(roles, subsets, roles)
def test_nobody_gives_more_than_they_have(giver: str, given_: frozenset[str], role: str) -> None:
    held = given_ & frozenset(ROLES[giver])
    if may_give(giver, held, role):
        assert set(ROLES[role]) <= held
        assert may_touch(giver, role)


@given(roles, subsets, roles, roles)
def test_what_is_given_gives_no_more(giver: str, given_: frozenset[str], between: str, last: str) -> None:
    """By no detour does somebody come to more than by themselves."""
    held = given_ & frozenset(ROLES[giver])
    if may_give(giver, held, between) and may_give(between, frozenset(ROLES[between]), last):
        assert may_give(giver, held, last)


def test_an_order_of_who_touches_whom() -> None:
    for one, other in itertools.product(ROLES, repeat=2):
        assert may_touch(one, other) or may_touch(other, one)
        assert (may_touch(one, other) and may_touch(other, one)) is (one == other)
    assert all(may_touch(OWNER, role) for role in ROLES)
    assert [role for role in ROLES if may_give(ADMIN, frozenset(ABILITIES), role)] == [ADMIN, DEVELOPER, VIEWER]
    assert not any(may_give(VIEWER, frozenset(), role) for role in ROLES)
