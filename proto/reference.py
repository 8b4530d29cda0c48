"""Writes docs/reference/grpc.md from the protos: `python proto/reference.py`. A test compares the page with them."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from runr.workflows.v1 import options_pb2

ROOT = Path(__file__).resolve().parent
PAGE = ROOT.parent / "docs" / "reference" / "grpc.md"

_PACKAGE = "runr.workflows.v1"
_HEAD = """\
# The gRPC API

Package `runr.workflows.v1`. Every route of the [REST API](../http-api.md) is one of these methods, called with the same
tokens in metadata; [proto/README.md](../../proto/README.md) tells how calls are made. This page is made from the
protos by `make reference`.
"""
# Numbers of fields in descriptor.proto, of which the paths of comments are made.
_MESSAGE, _ENUM, _SERVICE, _NESTED, _FIELD, _METHOD, _VALUE = 4, 5, 6, 3, 2, 2, 2
_TYPES = {number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()}

Path_ = tuple[int, ...]


def page() -> str:
    """The whole page."""
    files = [file for file in _files() if file.package == _PACKAGE]
    parts = [_HEAD]
    for file in files:
        comments = _comments(file)
        for place, service in enumerate(file.service):
            at = (_SERVICE, place)
            parts.append(f"## {service.name}\n\n{comments[at]}\n")
            parts.append("\n".join(_methods(service.method, at, comments)) + "\n")
    for file in files:
        comments = _comments(file)
        described = [*_messages(file, comments), *_enums(file.enum_type, (_ENUM,), comments, "")]
        if described:
            title = Path(file.name).stem.replace("_", " ")
            parts += [f"## Messages of the {title}\n", *described]
    return "\n".join(parts)


def _files() -> Sequence[FileDescriptorProto]:
    spec = importlib.util.spec_from_file_location("proto_generate", ROOT / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "all.binpb"
        generate.describe(target, comments=True)
        return list(FileDescriptorSet.FromString(target.read_bytes()).file)


def _comments(file: FileDescriptorProto) -> Mapping[Path_, str]:
    locations = file.source_code_info.location
    return {tuple(each.path): " ".join(each.leading_comments.split()) for each in locations}


def _methods(methods: Sequence[Any], at: Path_, comments: Mapping[Path_, str]) -> Iterator[str]:
    yield "| method | permission | does |"
    yield "| --- | --- | --- |"
    for place, method in enumerate(methods):
        asked, answered = (_named(name) for name in (method.input_type, method.output_type))
        takes = f"stream {asked}" if method.client_streaming else asked
        gives = f"stream {answered}" if method.server_streaming else answered
        permission = options_pb2.Permission.Name(method.options.Extensions[options_pb2.permission])
        words = comments[(*at, _METHOD, place)]
        allowed = permission.removeprefix("PERMISSION_").lower()
        yield f"| `{method.name}({takes}) → {gives}` | {allowed} | {_cell(words)} |"


def _messages(file: FileDescriptorProto, comments: Mapping[Path_, str]) -> Iterator[str]:
    def inside(message: DescriptorProto, at: Path_, name: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        yield f"### {name}\n\n{comments.get(at, '')}\n"
        if message.field:
            yield "\n".join(_fields(message, at, comments)) + "\n"
        for place, nested in enumerate(message.nested_type):
            yield from inside(nested, (*at, _NESTED, place), f"{name}.{nested.name}")
        yield from _enums(message.enum_type, (*at, 4), comments, f"{name}.")

    for place, message in enumerate(file.message_type):
        yield from inside(message, (_MESSAGE, place), message.name)


def _fields(message: DescriptorProto, at: Path_, comments: Mapping[Path_, str]) -> Iterator[str]:
    yield "| field | type | |"
    yield "| --- | --- | --- |"
    for place, field in enumerate(message.field):
        kind = _named(field.type_name) if field.type_name else _TYPES[field.type]
        label = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
        label = "optional " if field.proto3_optional else label
        words = _cell(comments.get((*at, _FIELD, place), ""))
        yield f"| `{field.name}` = {field.number} | {label}{kind} | {words} |".replace("|  |", "| |")


def _enums(
    enums: Sequence[EnumDescriptorProto], at: Path_, comments: Mapping[Path_, str], before: str
) -> Iterator[str]:
    for place, enum in enumerate(enums):
        here = (*at, place)
        lines = [
            f"| `{value.name}` = {value.number} | {_cell(comments.get((*here, _VALUE, index), ''))} |"
            for index, value in enumerate(enum.value)
        ]
        yield (
            f"### {before}{enum.name}\n\n{comments.get(here, '')}\n\n| value | |\n| --- | --- |\n"
            + "\n".join(lines)
            + "\n"
        )


def _named(type_name: str) -> str:
    return type_name.removeprefix(".").removeprefix(f"{_PACKAGE}.")


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} is written\n")
