"""The rules of `proto/README.md`: names, comments, permissions, generated code, nothing broken since the baseline."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from runr.workflows.v1 import options_pb2

from tests.unit.proto_breaking import breaks

PROTO = Path(__file__).resolve().parents[2] / "proto"
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL = re.compile(r"([A-Z][a-z0-9]*)+")
UPPER = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# Numbers of fields in descriptor.proto, of which SourceCodeInfo paths are made.
MESSAGE, ENUM, SERVICE, NESTED, NESTED_ENUM, METHOD, VALUE = 4, 5, 6, 3, 4, 2, 2

Named = tuple[str, tuple[int, ...]]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proto_generate", PROTO / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def files(generator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[FileDescriptorProto]:
    target = tmp_path_factory.mktemp("proto") / "all.binpb"
    generator.describe(target, comments=True)
    return list(FileDescriptorSet.FromString(target.read_bytes()).file)


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[DescriptorProto, tuple[int, ...]]]:
    def inside(message: DescriptorProto, path: tuple[int, ...]) -> Iterator[tuple[DescriptorProto, tuple[int, ...]]]:
        yield message, path
        for index, nested in enumerate(message.nested_type):
            yield from inside(nested, (*path, NESTED, index))

    for index, message in enumerate(file.message_type):
        yield from inside(message, (MESSAGE, index))


def enums_of(file: FileDescriptorProto) -> Iterator[tuple[EnumDescriptorProto, tuple[int, ...]]]:
    for index, enum in enumerate(file.enum_type):
        yield enum, (ENUM, index)
    for message, path in messages_of(file):
        for index, enum in enumerate(message.enum_type):
            yield enum, (*path, NESTED_ENUM, index)


def test_files_stand_where_their_package_says(files: list[FileDescriptorProto]) -> None:
    assert len(files) == len(list(PROTO.glob("runr/**/*.proto")))
    for file in files:
        assert file.syntax == "proto3", file.name
        assert str(Path(file.name).parent) == file.package.replace(".", "/"), file.name
        assert re.search(r"\.v[1-9][0-9]*$", file.package), file.name
        assert SNAKE.fullmatch(Path(file.name).stem), file.name


def test_imports_are_plain_and_used(files: list[FileDescriptorProto]) -> None:
    for file in files:
        assert not file.public_dependency, file.name
        assert not file.weak_dependency, file.name
        text = (PROTO / file.name).read_text()
        for imported in file.dependency:
            package = Path(imported).parent
            if package == Path(file.name).parent:
                other = next(candidate for candidate in files if candidate.name == imported)
                names = [m.name for m in other.message_type] + [e.name for e in other.enum_type]
                names += [extension.name for extension in other.extension]
                assert any(re.search(rf"\b{name}\b", text) for name in names), f"{file.name}: {imported} is not used"
            else:
                assert str(package).replace("/", ".") in text.replace(f'import "{imported}"', ""), file.name


def test_messages_and_fields_are_named_by_the_rules(files: list[FileDescriptorProto]) -> None:
    import keyword

    for file in files:
        for message, _ in messages_of(file):
            assert PASCAL.fullmatch(message.name), message.name
            for field in message.field:
                assert SNAKE.fullmatch(field.name), f"{message.name}.{field.name}"
                assert not keyword.iskeyword(field.name), f"{message.name}.{field.name} is a keyword"


def test_enums_have_a_prefix_and_an_unspecified_zero(files: list[FileDescriptorProto]) -> None:
    for file in files:
        for enum, _ in enums_of(file):
            assert PASCAL.fullmatch(enum.name), enum.name
            prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
            assert enum.value[0].number == 0, enum.name
            assert enum.value[0].name == f"{prefix}UNSPECIFIED", enum.name
            for value in enum.value:
                assert value.name.startswith(prefix), value.name
                assert UPPER.fullmatch(value.name), value.name


def test_methods_have_their_own_request_and_response(files: list[FileDescriptorProto]) -> None:
    seen: set[str] = set()
    for file in files:
        for service in file.service:
            assert PASCAL.fullmatch(service.name), service.name
            assert service.name.endswith("Service"), service.name
            for method in service.method:
                assert PASCAL.fullmatch(method.name), method.name
                expected = (f".{file.package}.{method.name}Request", f".{file.package}.{method.name}Response")
                assert (method.input_type, method.output_type) == expected
                assert not seen.intersection(expected), f"{method.name}: a second method has its messages"
                seen.update(expected)


def test_lists_are_paged(files: list[FileDescriptorProto]) -> None:
    exceptions = {"ListRolesRequest"}  # four built-in rows
    for file in files:
        shapes = {message.name: {field.name for field in message.field} for message in file.message_type}
        for name, fields in shapes.items():
            if name.startswith("List") and name.endswith("Request") and name not in exceptions:
                assert {"page_size", "page_token"} <= fields, name
                assert "next_page_token" in shapes[name.replace("Request", "Response")], name


def test_every_method_has_a_permission(files: list[FileDescriptorProto]) -> None:
    methods = [(service, method) for file in files for service in file.service for method in service.method]
    assert methods
    for service, method in methods:
        permission = method.options.Extensions[options_pb2.permission]
        assert permission != options_pb2.PERMISSION_UNSPECIFIED, f"{service.name}.{method.name}"


def test_everything_has_a_comment(files: list[FileDescriptorProto]) -> None:
    for file in files:
        comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        wanted: list[Named] = [(message.name, path) for message, path in messages_of(file)]
        for enum, path in enums_of(file):
            wanted.append((enum.name, path))
            wanted.extend((value.name, (*path, VALUE, index)) for index, value in enumerate(enum.value))
        for index, service in enumerate(file.service):
            wanted.append((service.name, (SERVICE, index)))
            wanted.extend((m.name, (SERVICE, index, METHOD, i)) for i, m in enumerate(service.method))
        for name, path in wanted:
            assert comments.get(path), f"{file.name}: {name} has no comment"


def test_generated_code_is_what_the_protos_say(generator: ModuleType, tmp_path: Path) -> None:
    generator.generate(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.py*") if path.is_file()}
    root = PROTO / "gen" / "python"
    stored = {path.relative_to(root): path.read_bytes() for path in root.rglob("*.py*") if path.suffix != ".pyc"}
    assert fresh
    assert fresh == stored, "run `python proto/generate.py`"


def test_nothing_is_broken_since_the_baseline(files: list[FileDescriptorProto]) -> None:
    baseline = FileDescriptorSet.FromString((PROTO / "baseline.binpb").read_bytes())
    assert breaks(list(baseline.file), files) == []


def one_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="a.proto", package="a.v1", syntax="proto3")
    message = file.message_type.add(name="Thing")
    message.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_STRING)
    message.field.add(name="size", number=2, type=FieldDescriptorProto.TYPE_INT32)
    enum = file.enum_type.add(name="Kind")
    enum.value.add(name="KIND_UNSPECIFIED", number=0)
    enum.value.add(name="KIND_A", number=1)
    service = file.service.add(name="ThingService")
    service.method.add(name="Get", input_type=".a.v1.GetRequest", output_type=".a.v1.GetResponse")
    return file


def test_the_breaking_check_sees_what_breaks() -> None:
    changes: dict[str, Callable[[FileDescriptorProto], object]] = {
        "removed field": lambda file: file.message_type[0].field.pop(),
        "renamed field": lambda file: setattr(file.message_type[0].field[1], "name", "length"),
        "retyped field": lambda file: setattr(file.message_type[0].field[1], "type", FieldDescriptorProto.TYPE_INT64),
        "moved field": lambda file: setattr(file.message_type[0].field[1], "number", 3),
        "repeated": lambda file: setattr(file.message_type[0].field[1], "label", FieldDescriptorProto.LABEL_REPEATED),
        "removed message": lambda file: file.message_type.pop(),
        "removed value": lambda file: file.enum_type[0].value.pop(),
        "removed method": lambda file: file.service[0].method.pop(),
        "removed service": lambda file: file.service.pop(),
        "streaming": lambda file: setattr(file.service[0].method[0], "server_streaming", True),
        "answer": lambda file: setattr(file.service[0].method[0], "output_type", ".a.v1.Other"),
    }
    assert breaks([one_file()], [one_file()]) == []
    for what, change in changes.items():
        changed = one_file()
        change(changed)
        assert breaks([one_file()], [changed]), what


def test_the_breaking_check_allows_what_is_reserved_or_new() -> None:
    grown = one_file()
    grown.message_type[0].field.pop()
    grown.message_type[0].reserved_range.add(start=2, end=3)
    grown.message_type[0].reserved_name.append("size")
    grown.message_type[0].field.add(name="more", number=4, type=FieldDescriptorProto.TYPE_BOOL)
    grown.enum_type[0].value.add(name="KIND_B", number=2)
    grown.service[0].method.add(name="List", input_type=".a.v1.ListRequest", output_type=".a.v1.ListResponse")
    assert breaks([one_file()], [grown]) == []
