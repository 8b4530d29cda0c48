"""Step ids and display names as the engine takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.step_id import display_name, step_id_fault


@pytest.mark.parametrize("step_id", ["a", " a ", "add:1", "ödeme:12", "a" * 255, "é" * 127, '"\\\n\t', "\U0001f600"])
def test_taken(step_id: str) -> None:
    assert step_id_fault(step_id) is None


@pytest.mark.parametrize("step_id", ["", "a" * 256, "é" * 128, "a\0b", "\ud800", None, 1, ["a"]])
def test_refused_in_words(step_id: object) -> None:
    fault = step_id_fault(step_id)

    assert fault
    assert fault.startswith("must be a step id")


@pytest.mark.parametrize(
    ("step_id", "given", "name"),
    [
        ("add", None, "add"),
        ("add:12", None, "add"),
        ("add:1:1", None, "add:1"),
        ("add:0", None, "add:0"),
        ("add:01", None, "add:01"),
        (":1", None, ":1"),
        ("add:1", "Add it", "Add it"),
        ("add:1", " ", "add"),
        ("add", 5, "add"),
        ("a", "x\0y\ud800", "x\ufffdy\ufffd"),
    ],
)
def test_display_name(step_id: str, given: object, name: str) -> None:
    assert display_name(step_id, given) == name


@given(st.text(st.characters(), min_size=1))
def test_a_display_name_always_fits_its_column(given: str) -> None:
    name = display_name("id", given)

    assert name
    assert "\0" not in name
    assert len(name.encode()) <= 255
