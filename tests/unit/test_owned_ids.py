"""Ids that senders make become their owner's own, and keep their order."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.core.runtime.ids import ids_from, ulid_unix_ms
from services.core.runtime.owned_ids import OwnedIds

IDS = OwnedIds(b"secret")
MAX_ID = 2**128 - 1
OFFERED = st.integers(0, MAX_ID).map(lambda number: UUID(int=number))
OWNERS = st.integers(1, 2**31 - 1)


@given(OFFERED, OWNERS)
def test_an_offer_has_one_id_in_every_process_with_its_time(offered: UUID, owner: int) -> None:
    made = IDS.of(offered, owner)
    assert made == OwnedIds(b"secret").of(offered, owner)
    assert made != OwnedIds(b"another").of(offered, owner)
    assert ulid_unix_ms(made) == ulid_unix_ms(offered)


@given(OFFERED, st.lists(OWNERS, min_size=2, max_size=2, unique=True))
def test_owners_have_no_id_in_common(offered: UUID, owners: list[int]) -> None:
    one, other = (IDS.of(offered, owner) for owner in owners)
    assert one != other
    assert IDS.of(one, owners[1]) != one, "also where the id of the other is offered"


@given(st.integers(0, MAX_ID >> 32), st.integers(0, 2**32 - 2_000), OWNERS)
def test_what_was_made_in_a_row_stays_in_a_row(high: int, low: int, owner: int) -> None:
    offered = ids_from(UUID(int=high << 32 | low), 1_000)
    made = [IDS.of(each, owner).int for each in offered]
    assert all(after - before == 1 for before, after in pairwise(made))


def test_a_digest_as_it_is_stored() -> None:
    """Replicas of two versions must agree: an item may be asked of one after the other."""
    assert IDS.of(UUID(int=0), 1).hex == "0000000000004fc5e5b8aeda00000000"
