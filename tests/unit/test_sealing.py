"""Secrets at rest open only in their place and under their key, and no sealed form repeats or shows the secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.runtime.sealing import SealBroken, Sealer

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
PLACE = "signing_key/1/1"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text(max_size=20))
def test_opens_what_it_sealed(secret: str, place: str) -> None:
    sealer = Sealer(KEY)
    assert sealer.open(sealer.seal(secret, place), place) == secret


@given(st.data())
def test_any_flipped_bit_breaks_the_seal(data: st.DataObject) -> None:
    sealer = Sealer(KEY)
    sealed = bytearray(sealer.seal("wfsk_secret", PLACE))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SealBroken):
        sealer.open(bytes(sealed), PLACE)


def test_another_place_does_not_open() -> None:
    sealer = Sealer(KEY)
    with pytest.raises(SealBroken, match="another place"):
        sealer.open(sealer.seal("wfsk_secret", PLACE), "signing_key/2/1")


def test_a_retired_key_still_opens_and_is_told_from_the_current() -> None:
    old = Sealer(KEY).seal("wfsk_secret", PLACE)
    sealer = Sealer(OTHER_KEY, retired=[KEY])
    assert sealer.open(old, PLACE) == "wfsk_secret"
    assert not sealer.is_current(old)
    assert sealer.is_current(sealer.seal("wfsk_secret", PLACE))


def test_a_foreign_key_is_named_as_the_cause() -> None:
    with pytest.raises(SealBroken, match="RUNR_ENCRYPTION_KEY"):
        Sealer(OTHER_KEY).open(Sealer(KEY).seal("wfsk_secret", PLACE), PLACE)


def test_the_same_secret_never_looks_the_same() -> None:
    sealer = Sealer(KEY)
    sealed = {sealer.seal("wfsk_secret", PLACE) for _ in range(100)}
    assert len(sealed) == 100
    assert all(b"wfsk" not in each for each in sealed)
