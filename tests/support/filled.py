"""Messages with something in every field, for whoever only passes them on."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

_DEPTH = 6
_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: 1,
    FieldDescriptor.CPPTYPE_INT64: 1,
    FieldDescriptor.CPPTYPE_UINT32: 1,
    FieldDescriptor.CPPTYPE_UINT64: 1,
    FieldDescriptor.CPPTYPE_DOUBLE: 1.0,
    FieldDescriptor.CPPTYPE_FLOAT: 1.0,
    FieldDescriptor.CPPTYPE_BOOL: True,
}
JSON = b'{"name": "w", "x": 1.0}'
"""What is in fields that hold JSON."""


def response_of(rpc: str) -> Any:
    """The response of a method, like `/runr.workflows.v1.RunService/GetRun`: the only page, with all else set."""
    service, _, method = rpc.removeprefix("/").partition("/")
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    message = message_factory.GetMessageClass(found.output_type)()
    fill(message)
    if hasattr(message, "next_page_token"):
        message.next_page_token = ""
    return message


def fill(message: Any, depth: int = _DEPTH) -> None:
    """Set every field."""
    if message.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
        message.FromMilliseconds(1_760_000_000_123)
        return
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None:
            _fill_message(message, field, depth)
        elif field.is_repeated:
            getattr(message, field.name).append(_value(field))
        else:
            setattr(message, field.name, _value(field))


def _fill_message(message: Any, field: FieldDescriptor, depth: int) -> None:
    if depth == 0 or field.message_type.GetOptions().map_entry:
        return
    inner = getattr(message, field.name)
    if field.is_repeated:
        fill(inner.add(), depth - 1)
    else:
        inner.SetInParent()
        fill(inner, depth - 1)


def _value(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return 1
    if field.type == FieldDescriptor.TYPE_BYTES:
        return JSON
    return "x" if field.type == FieldDescriptor.TYPE_STRING else _NUMBERS[field.cpp_type]
