"""Texts that no field may hold are found in every message that comes in, wherever they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.errors import InvalidInput, Malformed
from services.core.rpc.request_check import MAX_TEXT, check_request, deserializer
from tests.support.hostile import METHODS


def text_fields(message: Descriptor, depth: int = 0) -> Iterator[list[FieldDescriptor]]:
    """The ways to every text in a message."""
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_STRING:
            yield [field]
        elif field.type == FieldDescriptor.TYPE_MESSAGE and depth < 4:
            yield from ([field, *rest] for rest in text_fields(field.message_type, depth + 1))


WAYS = [(method, way) for method in METHODS for way in text_fields(method.input_type)]


def put(message: Any, way: list[FieldDescriptor], text: str) -> str:
    """Puts a text at the end of a way; its path."""
    field, *rest = way
    place = "[0]" if field.is_repeated else ""
    if not rest:
        if field.is_repeated:
            getattr(message, field.name).append(text)
        else:
            setattr(message, field.name, text)
        return f"{field.name}{place}"
    inner = getattr(message, field.name)
    below = put(inner.add() if field.is_repeated else inner, rest, text)
    return f"{field.name}{place}.{below}"


@given(st.sampled_from(WAYS), st.text(st.characters(exclude_categories=["Cs"])), st.data())
def test_a_nul_is_refused_with_its_path_in_every_text_of_every_request(
    found: tuple[Any, list[FieldDescriptor]], text: str, data: st.DataObject
) -> None:
    method, way = found
    cut = data.draw(st.integers(0, len(text)))
    request = message_factory.GetMessageClass(method.input_type)()
    path = put(request, way, f"{text[:cut]}\0{text[cut:]}")
    with pytest.raises(InvalidInput) as refused:
        check_request(request)
    assert [(fault.path, fault.message) for fault in refused.value.errors] == [(path, "must hold no NUL")]


@given(st.sampled_from(WAYS), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_other_text_is_left_to_whoever_knows_its_meaning(
    found: tuple[Any, list[FieldDescriptor]], text: str
) -> None:
    method, way = found
    request = message_factory.GetMessageClass(method.input_type)()
    put(request, way, text)
    check_request(request)


def test_a_text_longer_than_any_is_refused() -> None:
    method, way = WAYS[0]
    request = message_factory.GetMessageClass(method.input_type)()
    put(request, way, "x" * MAX_TEXT)
    check_request(request)
    put(request, way, "x" * (MAX_TEXT + 1))
    with pytest.raises(InvalidInput, match="at most"):
        check_request(request)


@given(st.binary(max_size=50))
def test_bytes_are_a_message_or_the_callers_fault(data: bytes) -> None:
    for method in METHODS[:5]:
        request = deserializer(message_factory.GetMessageClass(method.input_type).FromString)(data)
        try:
            check_request(request)
        except (Malformed, InvalidInput):
            continue
        assert request.DESCRIPTOR is method.input_type
