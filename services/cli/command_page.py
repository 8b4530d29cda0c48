"""`python -m services.cli.command_page` prints docs/reference/command-line.md, made from the parser.

A test compares the page with this output, so the page cannot say anything else than the command does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from services.cli.grammar import subcommands
from services.cli.main import parser

_HEAD = """\
# The command line

Every command of `runr` with its arguments, as `--help` shows them. How they are used:
[command-line.md](../how-to/command-line.md).

This page is printed by `python -m services.cli.command_page`; a test compares it with the parser.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_commands(parser(), "runr", "")])


def _commands(part: argparse.ArgumentParser, name: str, about: str) -> Iterator[str]:
    below = subcommands(part)
    if not below:
        yield _command(part, name, about)
    for word, (does, each) in below.items():
        yield from _commands(each, f"{name} {word}", does)


def _command(part: argparse.ArgumentParser, name: str, about: str) -> str:
    rows = [f"| {_spelled(action)} | {_cell(_help(action))} |" for action in part._actions if action.dest != "help"]
    table = ["| argument | |", "| --- | --- |", *rows, ""] if rows else []
    return "\n".join([f"## `{name}`", "", f"{_sentence(about)}", "", *table])


def _spelled(action: argparse.Action) -> str:
    if not action.option_strings:
        return _code(_value(action))
    spelled = ", ".join(map(_code, action.option_strings))
    if action.nargs == 0:
        return spelled
    value = f"[{_value(action)}]" if action.nargs == "?" else _value(action)
    return f"{spelled} {_code(value)}"


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        name = str(action.metavar)
    elif action.choices:
        name = "|".join(map(str, action.choices))
    else:
        name = action.dest.upper()
    many = {"*": "…", "+": "…"}.get(str(action.nargs), "")
    optional = action.nargs in ("*", "?") and not action.option_strings
    return f"[{name}{many}]" if optional else f"{name}{many}"


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text else ""


if __name__ == "__main__":
    sys.stdout.write(page())
