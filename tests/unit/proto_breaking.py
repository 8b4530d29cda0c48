"""What of an older set of protos a newer one breaks, on the wire or in the JSON form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)


def breaks(old: Sequence[FileDescriptorProto], new: Sequence[FileDescriptorProto]) -> list[str]:
    """One line for each break: a number reused, retyped or gone without `reserved`, a method gone or changed."""
    faults: list[str] = []
    messages, enums, services = _index(new)
    old_messages, old_enums, old_services = _index(old)
    for name, message in old_messages.items():
        faults += _message_breaks(name, message, messages.get(name))
    for name, enum in old_enums.items():
        faults += _enum_breaks(name, enum, enums.get(name))
    for name, service in old_services.items():
        faults += _service_breaks(name, service, services.get(name))
    return faults


def _index(
    files: Sequence[FileDescriptorProto],
) -> tuple[dict[str, DescriptorProto], dict[str, EnumDescriptorProto], dict[str, ServiceDescriptorProto]]:
    messages: dict[str, DescriptorProto] = {}
    enums: dict[str, EnumDescriptorProto] = {}
    services: dict[str, ServiceDescriptorProto] = {}
    for file in files:
        services.update({f"{file.package}.{service.name}": service for service in file.service})
        enums.update({f"{file.package}.{enum.name}": enum for enum in file.enum_type})
        for name, message in _nested(file.package, file.message_type):
            messages[name] = message
            enums.update({f"{name}.{enum.name}": enum for enum in message.enum_type})
    return messages, enums, services


def _nested(prefix: str, messages: Sequence[DescriptorProto]) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        name = f"{prefix}.{message.name}"
        yield name, message
        yield from _nested(name, message.nested_type)


def _message_breaks(name: str, old: DescriptorProto, new: DescriptorProto | None) -> Iterator[str]:
    if new is None:
        yield f"{name} is gone"
        return
    fields = {field.number: field for field in new.field}
    for field in old.field:
        now = fields.get(field.number)
        if now is None:
            numbers = any(span.start <= field.number < span.end for span in new.reserved_range)
            if not numbers or field.name not in new.reserved_name:
                yield f"{name}.{field.name} is gone and not reserved"
        elif _wire(old, field) != _wire(new, now):
            yield f"{name}.{field.name} has changed"


def _wire(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[str, int, str, int, str]:
    # An optional is a oneof of its own whose index moves when real ones are added, so only its being one counts.
    group = ""
    if field.HasField("oneof_index"):
        group = "?" if field.proto3_optional else message.oneof_decl[field.oneof_index].name
    return field.name, field.type, field.type_name, field.label or FieldDescriptorProto.LABEL_OPTIONAL, group


def _enum_breaks(name: str, old: EnumDescriptorProto, new: EnumDescriptorProto | None) -> Iterator[str]:
    if new is None:
        yield f"{name} is gone"
        return
    values = {value.number: value.name for value in new.value}
    for value in old.value:
        if value.number in values:
            if values[value.number] != value.name:
                yield f"{name}.{value.name} has changed"
        elif not any(span.start <= value.number <= span.end for span in new.reserved_range):
            yield f"{name}.{value.name} is gone and not reserved"


def _service_breaks(name: str, old: ServiceDescriptorProto, new: ServiceDescriptorProto | None) -> Iterator[str]:
    if new is None:
        yield f"{name} is gone"
        return
    methods = {method.name: method for method in new.method}
    for method in old.method:
        now = methods.get(method.name)
        if now is None:
            yield f"{name}.{method.name} is gone"
            continue
        before = (method.input_type, method.output_type, method.client_streaming, method.server_streaming)
        if before != (now.input_type, now.output_type, now.client_streaming, now.server_streaming):
            yield f"{name}.{method.name} has changed"
