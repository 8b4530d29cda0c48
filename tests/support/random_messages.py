"""Random messages of gRPC methods, made of their descriptors: any value of any field, often a meaningful one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

_DEPTH = 4
_ITEMS = 3
_INTS = [0, 1, -1, 7, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63)]
_TEXTS = [
    *("", " ", "0", "a\0b", "../x", "%00", "'; drop table rt.live; --", "a" * 300, "\u202e", "\U0001f4a5", "runr/x"),
    *("workflows.view", "owner", "a@b.c", "http://127.0.0.1:1/", "http://169.254.169.254/", "* * * * *", "5m", "NaN"),
]
_JSON = [
    *(b"", b"{}", b"[]", b"null", b'{"a": 1.0}', b'{"a":', b'{"a":1,"a":2}', b"\xff", b'"\\ud800"', b"[" * 300),
    *(b'{"workflows":[{"name":"w"}]}', b'[{"name":"w","triggers":[{"event":"e"}]}]', b"1e999", b'{"a":"\\u0000"}'),
]
_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def messages(form: Descriptor, known: Sequence[str], depth: int = _DEPTH) -> st.SearchStrategy[Any]:
    """Messages of a type. `known` are texts that name something."""
    make = message_factory.GetMessageClass(form)
    fields = {field.name: _values(field, known, depth) for field in form.fields if depth or field.message_type is None}

    @st.composite
    def composed(draw: st.DrawFn) -> Any:
        message = make()
        for name in draw(st.lists(st.sampled_from(sorted(fields)), unique=True)) if fields else ():
            _put(message, form.fields_by_name[name], draw(fields[name]))
        return message

    return composed()


def _put(message: Any, field: FieldDescriptor, value: Any) -> None:
    if field.is_repeated:
        getattr(message, field.name).extend(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(value)
    else:
        setattr(message, field.name, value)


def _values(field: FieldDescriptor, known: Sequence[str], depth: int) -> st.SearchStrategy[Any]:
    one = _one(field, known, depth)
    return st.lists(one, max_size=_ITEMS) if field.is_repeated else one


def _one(field: FieldDescriptor, known: Sequence[str], depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return messages(field.message_type, known, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([*field.enum_type.values_by_number, 99])
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from([*known, *_TEXTS]) | st.text(max_size=40)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(_JSON) | st.binary(max_size=40)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans()
    bounds = _BOUNDS.get(field.cpp_type)
    if bounds is None:
        return st.floats()
    low, high = bounds
    return st.sampled_from([number for number in _INTS if low <= number <= high]) | st.integers(low, high)
