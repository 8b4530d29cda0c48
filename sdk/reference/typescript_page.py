"""The reference of the TypeScript SDK: what its entries export, as its sources declare it.

It reads the sources as text and relies on how they are formatted: members are indented by two spaces, and what a
declaration ends with stands at its own indentation. Bodies and what is private are left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

_ENTRIES = {
    "index.ts": "@runr/workflows",
    "fetch.ts": "@runr/workflows/fetch",
    "node.ts": "@runr/workflows/node",
    "client.ts": "@runr/workflows/client",
    "testing.ts": "@runr/workflows/testing",
}
_HEAD = """\
# TypeScript SDK: reference

What the entries of `@runr/workflows` export. How to use it is told in
[the README of the SDK](../../sdk/node/README.md).

This page is made from the code by `make reference`; a test compares it with the code.
"""
_LIST = re.compile(r"^export (?:type )?\{(?P<names>[^}]*)\}(?: from \"\./(?P<file>[^\"]+)\.js\")?;$", re.MULTILINE)
_ALL = re.compile(r"^export \* from \"\./([^\"]+)\.js\";$", re.MULTILINE)
_IMPORT = re.compile(r"^import (?:type )?\{(?P<names>[^}]*)\} from \"\./(?P<file>[^\"]+)\.js\";$", re.MULTILINE)
_OWN = re.compile(r"^export (?:abstract |async )?(?:class|interface|type|function|const) (\w+)", re.MULTILINE)
_DOC = r"(?P<doc>/\*\*(?:(?!\*/).)*\*/\n)?"
_BASE = re.compile(r" extends (\w+)(?:<[^{]*>)? \{")
_MADE_BY_THE_SDK = {"Context", "RunHandle", "Step", "StepRunner"}
_FOR_THE_SDK = re.compile(r"  (?:#|private |protected |static #|readonly #|async #|static \{|override name;)")


def typescript_page(sources: Path) -> str:
    """The whole page. What an entry shares with the first one is told once."""
    parts, told = [_HEAD], set[tuple[str, str]]()
    for file, entry in _ENTRIES.items():
        exported = dict(_exports(sources, file))
        shared = sorted(name for name, place in exported.items() if place in told)
        parts.append(f"## {entry}\n\n{_lead((sources / file).read_text())}\n")
        if shared:
            parts.append(f"As in `{_ENTRIES['index.ts']}`: {', '.join(f'`{name}`' for name in shared)}.\n")
        for name in sorted(exported.keys() - set(shared), key=str.lower):
            parts.append(_described(sources, name, exported))
        told |= set(exported.values())
    return "\n".join(parts)


def _exports(sources: Path, file: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Exported name → the file that declares it, and its name there."""
    text = (sources / file).read_text()
    for other in _ALL.findall(text):
        yield from _exports(sources, f"{other}.ts")
    imported = {
        name: (f"{match['file']}.ts", own) for match in _IMPORT.finditer(text) for own, name in _names(match["names"])
    }
    for match in _LIST.finditer(text):
        for own, name in _names(match["names"]):
            yield name, (f"{match['file']}.ts", own) if match["file"] else imported[own]
    for name in _OWN.findall(text):
        yield name, (file, name)


def _names(listed: str) -> Iterator[tuple[str, str]]:
    """(its name there, its name here) of a list in braces."""
    for each in filter(None, (part.strip().removeprefix("type ") for part in listed.split(","))):
        own, _, name = each.partition(" as ")
        yield own, name or own


def _described(sources: Path, name: str, exported: Mapping[str, tuple[str, str]]) -> str:
    file, own = exported[name]
    doc, lines = _declaration((sources / file).read_text(), own)
    code = "\n".join(_with_base(sources, lines, {own for _, own in exported.values()}))
    if name != own:
        code = re.sub(rf"\b{own}\b", name, code)
    prose = f"{_plain(doc)}\n\n" if doc else ""
    return f"### {name}\n\n{prose}```typescript\n{code}\n```\n"


def _declaration(text: str, name: str) -> tuple[str, list[str]]:
    """The comment before a declaration, and the declaration without bodies."""
    kinds = "(?:abstract )?class|interface|type|(?:async )?function|const"
    match = re.search(rf"{_DOC}^export (?:{kinds}) {name}\b", text, re.MULTILINE | re.DOTALL)
    assert match is not None, name
    lines = text[match.end("doc") if match["doc"] else match.start() :].removeprefix("export ").splitlines()
    kind = lines[0].split()[0]
    if kind in ("class", "abstract"):
        return match["doc"] or "", list(_class_lines(lines, is_made=name in _MADE_BY_THE_SDK))
    if kind in ("function", "async"):
        head = _signature(lines, "")[0]
        return match["doc"] or "", [head[0].removeprefix("async "), *head[1:]]
    return match["doc"] or "", _statement(lines)


def _statement(lines: list[str]) -> list[str]:
    """An interface, a type or a constant, to its end."""
    if lines[0].startswith("interface "):
        return lines[: lines.index("}") + 1] if not lines[0].endswith("}") else lines[:1]
    # What goes on is indented; an object type's own members end with semicolons too.
    last = next(
        place
        for place, line in enumerate(lines)
        if line.endswith(";") and not "".join(lines[place + 1 : place + 2]).startswith((" ", "}"))
    )
    return lines[: last + 1]


def _signature(lines: list[str], indent: str) -> tuple[list[str], int]:
    """A function or method without its body, and how many lines it has with it."""
    for place, line in enumerate(lines):
        is_last = (place == 0 or not line.startswith(f"{indent} ")) and line.endswith((" {", ";", " {}"))
        if not is_last:
            continue
        head = [*lines[:place], f"{line.removesuffix(' {}').removesuffix(' {').removesuffix(';')};"]
        if not line.endswith(" {"):
            return head, place + 1
        end = next(n for n, after in enumerate(lines[place:], place) if after in (f"{indent}}}", f"{indent}}};"))
        return head, end + 1
    raise ValueError(f"it has no end: {lines[0]}")


def _class_lines(lines: list[str], *, is_made: bool) -> Iterator[str]:
    """The head of a class, its public members with their comments, and its end. Who `is_made` shows no constructor."""
    if lines[0].endswith("{}"):
        yield lines[0]
        return
    head, _ = _signature(lines, "")
    yield from (*head[:-1], f"{head[-1].removesuffix(';')} {{")
    for member in _members(lines[len(head) : lines.index("}")]):
        if not (is_made and "constructor(" in "".join(member)):
            yield from member
    yield "}"


def _members(lines: list[str]) -> Iterator[list[str]]:
    """The public members, each with its comment."""
    place, comment = 0, list[str]()
    while place < len(lines):
        line = lines[place]
        if not line.strip():
            place, comment = place + 1, []
        elif line.startswith(("  /**", "   *")):
            comment.append(line)
            place += 1
        elif line.startswith("  //"):
            place += 1
        else:
            member, length = _member(lines[place:])
            if not _FOR_THE_SDK.match(line) and not line.startswith("  override name ="):
                yield [*comment, re.sub(r"^  async ", "  ", member[0]), *member[1:]]
            place, comment = place + length, []


def _member(lines: list[str]) -> tuple[list[str], int]:
    """A field, or a method without its body; and its length."""
    if re.match(r"  (?:static |readonly |override )*[#\w\[\].]+[?!]?(?:: [^({]*)?(?: = .*)?;$", lines[0]):
        return [re.sub(r" = .*;$", ";", lines[0])], 1
    return _signature(lines, "  ")


def _with_base(sources: Path, lines: list[str], exported: Collection[str]) -> Iterable[str]:
    """A class with the members of its base, where that is of the SDK and not described itself."""
    base = _BASE.search(lines[0])
    if "class " not in lines[0] or base is None or base[1] in exported:
        return lines
    for path in sorted(sources.rglob("*.ts")):
        text = path.read_text()
        if re.search(rf"^export (?:abstract )?class {base[1]}\b", text, re.MULTILINE):
            inherited = list(_with_base(sources, _declaration(text, base[1])[1], exported))
            return [lines[0], *inherited[1:-1], *lines[1:]]
    return lines


def _lead(text: str) -> str:
    """The comment that a module begins with."""
    match = re.match(_DOC, text, re.DOTALL)
    return _plain(match["doc"]) if match and match["doc"] else ""


def _plain(comment: str) -> str:
    """The text of a comment, without its marks."""
    inner = comment.strip().removeprefix("/**").removesuffix("*/")
    return "\n".join(line.strip().removeprefix("*").strip() for line in inner.splitlines()).strip()
