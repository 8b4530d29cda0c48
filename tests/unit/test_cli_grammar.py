"""What the command line says to somebody who has mistyped, and that it says everywhere what programs need."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from services.cli import command_page, completion
from services.cli.grammar import SHELLS, subcommands
from services.cli.main import main, parser
from tests.support.pages import page

PRINTS_NOTHING = {"dev", "serve", "demo", "completion"}
"""Commands that go on, or whose output is text by its nature."""


def leaves(part: argparse.ArgumentParser, path: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command with its parser."""
    below = subcommands(part)
    if not below:
        yield path, part
    for word, (_, each) in below.items():
        yield from leaves(each, f"{path} {word}".strip())


COMMANDS = dict(leaves(parser()))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rnus list", "there is no rnus (did you mean runs?)"),
        ("runs lst", "there is no lst (did you mean list?)"),
        ("runs list --projct x", "not known here: --projct (did you mean --project?), x"),
        ("runs list --statsu=failed", "not known here: --statsu=failed (did you mean --status?)"),
        ("tokens create ci --abilty events.send", "(did you mean --ability?)"),
        ("serve gatway", "there is no gatway (did you mean gateway?)"),
        ("completion fsh", "there is no fsh (did you mean fish?)"),
        ("runs list --zzz", "not known here: --zzz\n"),
        ("runs logs a b", "not known here: b; it takes one RUN\n"),
        ("", "runr: say which command:\n  dev "),
        ("runs", "runr runs: say which command:\n  list "),
    ],
)
def test_what_was_meant_is_said(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_says_what_it_does_and_speaks_json(command: str) -> None:
    part = COMMANDS[command]
    options = {string for action in part._actions for string in action.option_strings}
    if command.split()[0] not in PRINTS_NOTHING and not command.startswith("queue"):
        assert "--json" in options
    for action in part._actions:
        assert action.help or not action.option_strings, f"{command}: {action.option_strings} has no words"


def test_the_page_is_that_of_the_parser() -> None:
    assert page("docs/reference/command-line.md").text == command_page.page(), "make it again: make reference"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_told_every_word_and_option(shell: str) -> None:
    text = completion.script(shell, parser())
    for command, part in COMMANDS.items():
        for word in command.split():
            assert word in text
        for action in part._actions:
            for string in action.option_strings:
                assert string in text or f"-l {string[2:]}" in text or f"-s {string[1:]}" in text


async def _fails(*_: object) -> int:
    raise KeyError("status")


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"runr {version('runr-engine')}\n")


def test_a_fault_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("services.cli.main._command", _fails)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "runr doctor: a fault of ours: KeyError: 'status'"
    monkeypatch.setenv("RUNR_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["doctor"])


def test_without_the_client_of_redis_it_is_said_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [name for name in sys.modules if name.startswith("services.cli.queue.")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ["redis", *(name for name in sys.modules if name.startswith("redis."))]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setenv("RUNR_QUEUE_URL", "http://127.0.0.1:1/api/internal/workflows/queue/t/p/x")
    assert main(["queue", "consume"]) == 2
    assert "in its checkout pip install ./proto '.[redis]'" in capsys.readouterr().err
