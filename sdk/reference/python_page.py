"""The reference of the Python SDK: what its public modules export, with signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, get_overloads, is_typeddict

_PACKAGE = "runr_workflows"
_MODULES = (_PACKAGE, f"{_PACKAGE}.client", f"{_PACKAGE}.testing")
_WIDTH = 120
_MADE_BY_THE_SDK = {"AsyncRunHandle", "AsyncStep", "Context", "RunHandle", "Step", "TestRun", "Timeline"}
_FOR_THE_SDK = {"Context.close", "Context.introduce", "Context.keeper"}

_HEAD = """\
# Python SDK: reference

What `runr_workflows`, `runr_workflows.client` and `runr_workflows.testing` export. How to use it is told in
[the how-to pages](../how-to/README.md) and in [the README of the SDK](../../sdk/python/README.md).

This page is made from the code by `make reference`; a test compares it with the code.
"""


def python_page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for module in map(import_module, _MODULES):
        parts.append(f"## {module.__name__}\n\n{_doc(module)}\n")
        for name in sorted(module.__all__, key=lambda name: (name.startswith("_"), name.lower())):
            parts.append(f"### {name}\n\n{_described(name, getattr(module, name), module)}\n")
    return "\n".join(parts)


def _described(name: str, value: object, module: ModuleType) -> str:
    if inspect.isclass(value):
        return "\n\n".join(_class(name, value))
    if inspect.isfunction(value):
        return "\n\n".join(_function(value))
    return _fenced(f"{name} = {_alias(name, value, module)}")


def _class(name: str, cls: type[Any]) -> Iterator[str]:
    """Its line, its docstring, its fields, then its methods with those that it inherits within the SDK."""
    bases = ["TypedDict"] if is_typeddict(cls) else [base.__name__ for base in cls.__bases__ if base is not object]
    generic = f"Generic[{', '.join(each.__name__ for each in getattr(cls, '__parameters__', ()))}]"
    told = ", ".join(generic if base == "Generic" else base for base in bases)
    yield _fenced(f"class {name}({told}): ...".replace("()", ""))
    if _has_own_doc(cls):
        yield _doc(cls)
    fields = list(_fields(cls))
    if fields:
        yield "\n".join(["| field | |", "| --- | --- |", *fields])
    for member, value in _members(cls).items():
        if f"{name}.{member}" in _FOR_THE_SDK or (member == "__init__" and name in _MADE_BY_THE_SDK):
            continue
        yield f"#### {name}.{member}" if member != "__init__" else f"#### {name}()"
        yield from _member(value)


def _has_own_doc(cls: type[Any]) -> bool:
    """A dataclass without a docstring is given its signature as one."""
    return bool(cls.__doc__) and not str(cls.__doc__).startswith(f"{cls.__name__}(")


def _members(cls: type[Any]) -> dict[str, Any]:
    """Public members in the order of the code, of the bases in the SDK and of the class."""
    found: dict[str, Any] = {}
    for each in reversed(cls.__mro__):
        if each.__module__.partition(".")[0] != _PACKAGE or is_typeddict(each):
            continue
        for name, value in vars(each).items():
            is_shown = inspect.isfunction(value) or isinstance(value, property | staticmethod | classmethod)
            is_made = name == "__init__" and is_dataclass(each)
            if is_shown and not is_made and (not name.startswith("_") or name == "__init__"):
                found[name] = value
    if "__init__" in found and not inspect.signature(found["__init__"]).parameters.keys() - {"self"}:
        del found["__init__"]
    return found


def _member(value: Any) -> Iterator[str]:
    if isinstance(value, property):
        assert value.fget is not None
        node = _parsed(value.fget)
        yield _fenced(f"{node.name}: {ast.unparse(node.returns) if node.returns else 'Any'}")
        yield _doc(value.fget)
    else:
        yield from _function(value.__func__ if isinstance(value, staticmethod | classmethod) else value)


def _function(fn: Callable[..., Any]) -> Iterator[str]:
    """Its signatures, then its docstring if it has one."""
    variants = get_overloads(fn) or [fn]
    yield _fenced("\n".join(_signature(_parsed(each)) for each in variants))
    if fn.__doc__:
        yield _doc(fn)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """One line, or one for each parameter where that is too long: as the formatter of the project has it."""
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = list(_parameters(node.args))
    line = f"{word} {node.name}({', '.join(parameters)}){returned}: ..."
    if len(line) <= _WIDTH:
        return line.replace("'", '"')
    within = f"    {', '.join(parameters)}"
    if len(within) > _WIDTH:
        within = "\n".join(f"    {each}," for each in parameters)
    return f"{word} {node.name}(\n{within}\n){returned}: ...".replace("'", '"')


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    """Each parameter, with the marks `/` and `*` between them."""
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    for place, (each, default) in enumerate(zip(positional, defaults, strict=True), 1):
        yield _parameter(each, default)
        if place == len(arguments.posonlyargs):
            yield "/"
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(each, default)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    if default is None:
        return ast.unparse(argument)
    equals = " = " if argument.annotation else "="
    return f"{ast.unparse(argument)}{equals}{ast.unparse(default)}"


def _fields(cls: type[Any]) -> Iterator[str]:
    """Rows of the annotated fields that the class declares, or sets at once; the text behind one is its docstring."""
    body = _class_node(cls).body
    if not (is_typeddict(cls) or is_dataclass(cls)):
        yield from _attributes(cls, body)
        return
    for place, node in enumerate(body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.target.id[0] == "_":
            continue
        told = body[place + 1] if place + 1 < len(body) else None
        text = ""
        if isinstance(told, ast.Expr) and isinstance(told.value, ast.Constant):
            text = " ".join(str(told.value.value).split())
        yield _row(node.target.id, node.annotation, text)


def _attributes(cls: type[Any], body: list[ast.stmt]) -> Iterator[str]:
    """Rows of the public attributes whose type `__init__` tells: of its own, or that of what they are taken from."""
    for method in body:
        if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
            continue
        given = {each.arg: each.annotation for each in (*method.args.args, *method.args.kwonlyargs)}
        for node in method.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
                annotation = getattr(node, "annotation", None) or _type_of(
                    node, given, vars(import_module(cls.__module__))
                )
                if annotation is not None:
                    yield _row(target.attr, annotation, "")


def _type_of(node: ast.stmt, given: Mapping[str, ast.expr | None], names: Mapping[str, Any]) -> ast.expr | None:
    """The type of a parameter that is assigned, or of a field of one."""
    value = node.value if isinstance(node, ast.Assign) else None
    if isinstance(value, ast.Name):
        return given.get(value.id)
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        annotation = given.get(value.value.id)
        owner = names.get(annotation.id) if isinstance(annotation, ast.Name) else None
        told = inspect.get_annotations(owner).get(value.attr) if inspect.isclass(owner) else None
        return ast.parse(str(told), mode="eval").body if told else None
    return None


def _row(name: str, annotation: ast.expr, text: str) -> str:
    declared = f"{name}: {ast.unparse(annotation)}".replace("'", '"').replace("|", "\\|")
    return f"| `{declared}` | {text} |".replace("|  |", "| |")


def _class_node(cls: type[Any]) -> ast.ClassDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    return node


def _parsed(fn: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(fn))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _alias(name: str, value: object, module: ModuleType) -> str:
    """How the code defines a name that is neither a class nor a function."""
    for source in (module, *_submodules(module)):
        for node in ast.parse(inspect.getsource(source)).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and target.id == name:
                assert isinstance(node, ast.Assign | ast.AnnAssign)
                assert node.value is not None
                return ast.unparse(node.value).replace("'", '"')
    return repr(value)


def _submodules(module: ModuleType) -> Iterator[ModuleType]:
    """The modules that a module imports its names from."""
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.level and node.module:
            package = str(module.__package__)
            yield import_module("." * node.level + node.module, package)


def _doc(value: object) -> str:
    return inspect.getdoc(value) or ""


def _fenced(code: str) -> str:
    return f"```py\n{code}\n```"
