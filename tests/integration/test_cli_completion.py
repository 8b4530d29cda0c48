"""The completion of the command line in the shells that it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from services.cli.completion import script
from services.cli.grammar import SHELLS
from services.cli.main import parser

ASKED = {
    "runr ": {"runs", "serve", "tokens"},
    "runr ru": {"runs"},
    "runr runs ": {"list", "logs", "retry"},
    "runr runs list --st": {"--status"},
    "runr runs --json list --sta": {"--status"},
    "runr admin tenant ": {"create", "list"},
    "runr completion ": set(SHELLS),
    "runr completion z": {"zsh"},
    "runr serve ga": {"gateway"},
    "runr login --token-file to": {"token.txt"},
    "runr runs list --q ": set(),
}
"""What is typed, and what must be among the answers; nothing but files where nothing is known."""

BASH = """
source "$1"
COMP_WORDS=($2); [[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_runr
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
_message() { : }
_describe() { print -l -- ${${(P)2}%%:*} }
_files() { print -l -- *(N) }
compadd() { print -l -- ${@:2} }
source "$1"
words=(${=2}); [[ $2 == *" " ]] && words+=("")
CURRENT=${#words}
_runr | grep -- "^${words[-1]}"
true
"""
FISH = """
source "$argv[1]"
complete -C "$argv[2]" | string split -f 1 \\t
true
"""
PROGRAMS = {"bash": ["bash", "-c", BASH, "-"], "zsh": ["zsh", "-f", "-c", ZSH, "-"], "fish": ["fish", "-c", FISH]}


@pytest.mark.parametrize("typed", ASKED)
@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes(shell: str, typed: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "token.txt").touch()
    written = tmp_path / "completion"
    written.write_text(script(shell, parser()))
    asked = subprocess.run(
        [*PROGRAMS[shell], str(written), typed],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    answers = {line for line in asked.stdout.splitlines() if line}
    assert answers >= ASKED[typed]
    if not typed.endswith(" ") and "--" not in typed:
        assert answers == ASKED[typed]
    assert answers or not ASKED[typed]
