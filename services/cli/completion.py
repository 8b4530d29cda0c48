"""`runr completion`: what a shell completes, written out from the parser, so that no key starts a program.

runr completion bash > ~/.local/share/bash-completion/completions/runr
runr completion zsh > ~/.zfunc/_runr            # with fpath+=~/.zfunc before compinit
runr completion fish > ~/.config/fish/completions/runr.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from services.cli.grammar import subcommands

_FILES = ("FILE",)
"""Metavars of what is a path."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option: all its spellings, what it is about, and what may follow it: nothing, a value, a file."""

    strings: tuple[str, ...]
    about: str
    takes_value: bool
    is_file: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """After these words of commands: which words and options may come."""

    path: str
    words: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    takes_files: bool


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for a shell of `SHELLS`."""
    places = list(_places(parser, ""))
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](places)


def _places(parser: argparse.ArgumentParser, path: str) -> Iterator[Place]:
    below = subcommands(parser)
    words = [(name, about) for name, (about, _) in below.items()]
    options, files = [], False
    for action in parser._actions:
        if action.option_strings:
            options.append(_option(action))
        elif action.choices and not below:
            words += [(str(choice), "") for choice in action.choices]
        else:
            files |= action.metavar in _FILES
    yield Place(path, tuple(words), tuple(options), files)
    for name, (_, each) in below.items():
        yield from _places(each, f"{path} {name}".strip())


def _option(action: argparse.Action) -> Option:
    takes_value = action.nargs != 0
    choices = () if not action.choices or isinstance(action.choices, range) else tuple(map(str, action.choices))
    is_file = takes_value and action.metavar in _FILES
    return Option(tuple(action.option_strings), _plain(action.help or ""), takes_value, is_file, choices)


def _plain(text: str) -> str:
    """A help text as it is shown, in one line of letters that no shell reads anything into."""
    return text.replace("%%", "%").replace("`", "").replace("'", "’").replace('"', "”").replace("\\", "")


def _paths(places: list[Place]) -> list[str]:
    return [place.path for place in places if place.path]


def _bash(places: list[Place]) -> str:
    known = "|".join(f'" {path}"' for path in _paths(places))
    lines = [
        "# bash completion of runr, written by `runr completion bash`",
        "_runr() {",
        '  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} place="" words="" i',
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    case "$place ${COMP_WORDS[i]}" in',
        f'      {known}) place+=" ${{COMP_WORDS[i]}}" ;;',
        "    esac",
        "  done",
        "  COMPREPLY=()",
        '  case "$place $prev" in',
    ]
    for place in places:
        for option in (each for each in place.options if each.takes_value):
            pattern = "|".join(f'"{_prefixed(place.path)} {string}"' for string in option.strings)
            lines.append(f"    {pattern}) {_bash_value(option)}; return ;;")
    lines += ["  esac", '  case "$place" in']
    for place in places:
        words = [*(word for word, _ in place.words), *(string for each in place.options for string in each.strings)]
        lines.append(f'    "{_prefixed(place.path)}") words="{" ".join(words)}" ;;')
    lines += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$cur"))', "}", "complete -F _runr runr"]
    return "\n".join(lines) + "\n"


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur"))'
    return 'COMPREPLY=($(compgen -f -- "$cur"))' if option.is_file else ":"


def _prefixed(path: str) -> str:
    return f" {path}" if path else ""


def _zsh(places: list[Place]) -> str:
    known = "|".join(f'" {path}"' for path in _paths(places))
    lines = [
        "#compdef runr",
        "# zsh completion of runr, written by `runr completion zsh`",
        "_runr() {",
        '  local place="" i',
        "  local -a candidates",
        "  for ((i = 2; i < CURRENT; i++)); do",
        '    case "$place ${words[i]}" in',
        f'      {known}) place+=" ${{words[i]}}" ;;',
        "    esac",
        "  done",
        '  case "$place ${words[CURRENT-1]}" in',
    ]
    for place in places:
        for option in (each for each in place.options if each.takes_value):
            pattern = "|".join(f'"{_prefixed(place.path)} {string}"' for string in option.strings)
            lines.append(f"    {pattern}) {_zsh_value(option)}; return ;;")
    lines += ["  esac", '  case "$place" in']
    for place in places:
        pairs = [*place.words, *((string, each.about) for each in place.options for string in each.strings)]
        told = " ".join(shlex.quote(f"{word}:{_plain(about)}") for word, about in pairs)
        lines.append(f'    "{_prefixed(place.path)}") candidates=({told}) ;;')
    lines += ["  esac", "  _describe 'runr' candidates", "}", "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then"]
    lines += ['  _runr "$@"', "else", "  compdef _runr runr", "fi"]
    return "\n".join(lines) + "\n"


def _zsh_value(option: Option) -> str:
    if option.choices:
        return f"compadd -- {' '.join(option.choices)}"
    return "_files" if option.is_file else "_message value"


def _fish(places: list[Place]) -> str:
    known = " ".join(f"' {path}'" for path in _paths(places))
    lines = [
        "# fish completion of runr, written by `runr completion fish`",
        "function __runr_at",
        "  set -l place ''",
        "  for word in (commandline -opc)[2..-1]",
        '    if contains -- "$place $word" ' + known,
        '      set place "$place $word"',
        "    end",
        "  end",
        '  test "$place" = "$argv[1]"',
        "end",
        "complete -c runr -f",
    ]
    for place in places:
        at = f"complete -c runr -n \"__runr_at '{_prefixed(place.path)}'\""
        lines += [f"{at} -a {word} -d '{_plain(about)}'" for word, about in place.words]
        lines += [f"{at}{_fish_option(option)} -d '{option.about}'" for option in place.options]
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    spelled = "".join(f" -l {each[2:]}" if each.startswith("--") else f" -s {each[1:]}" for each in option.strings)
    if option.choices:
        return f"{spelled} -x -a '{' '.join(option.choices)}'"
    return f"{spelled} -r -F" if option.is_file else f"{spelled} -x" if option.takes_value else spelled
