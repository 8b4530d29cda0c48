"""The parser of the command line: argparse, but for what it says to somebody who has mistyped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from services.cli.suggest import did_you_mean

SHELLS = ("bash", "zsh", "fish")
"""Whose completion is there."""

_MISSING = "the following arguments are required"


class Grammar(argparse.ArgumentParser):
    """Says what was meant where a command, a choice or an option is not there."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it; a stranger among the options is told by the command that it was given to."""
        given, strange = self.parse_known_args(args, namespace)
        if strange:
            _parser_of(self, given).refuse(strange)
        return given

    def refuse(self, strange: Sequence[str]) -> NoReturn:
        """Ends the program because of words that this command does not know."""
        options = list(option_strings(self))
        said = [f"{word}{did_you_mean(word.partition('=')[0], options)}" for word in strange]
        places = [str(action.metavar or action.dest) for action in self._get_positional_actions()]
        one = f"; it takes one {places[0]}" if len(places) == 1 and not any(word[:1] == "-" for word in strange) else ""
        self.error(f"not known here: {', '.join(said)}{one}")

    def error(self, message: str) -> NoReturn:
        """Ends the program. Where it was not said which command, all are told."""
        known = subcommands(self)
        if known and message.startswith(_MISSING):
            width = max(map(len, known))
            lines = [f"  {name:<{width}}  {about}" for name, (about, _) in known.items()]
            listed = "\n".join(lines)
            self.exit(2, f"{self.prog}: say which command:\n{listed}\n`{self.prog} COMMAND --help` tells the rest\n")
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"there is no {value}{did_you_mean(str(value), known)}; it is one of {', '.join(known)}"
            )


class ShowVersion(argparse.Action):
    """Prints which version of the engine is installed, and ends the program. Only who asks pays for looking it up."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        from services.core.runtime.version import engine_version

        sys.stdout.write(f"{parser.prog} {engine_version()}\n")
        parser.exit()


def subcommands(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """The commands below a parser: by their names, what each does and how it is parsed."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (about.get(name, ""), each) for name, each in action.choices.items()}
    return {}


def option_strings(parser: argparse.ArgumentParser) -> Iterator[str]:
    """What begins with a dash."""
    for action in parser._actions:
        yield from action.option_strings


def _parser_of(parser: Grammar, given: argparse.Namespace) -> Grammar:
    """The parser of the command that was given."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found = action.choices.get(getattr(given, action.dest, None) or "")
            return _parser_of(found, given) if isinstance(found, Grammar) else parser
    return parser
