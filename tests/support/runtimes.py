"""Runtimes for JavaScript besides Node. They are tested where they are installed: CI has none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

import pytest

COMMANDS: Mapping[str, tuple[str, ...]] = {"deno": ("deno", "run", "--allow-all"), "bun": ("bun", "run")}


def runtime(name: str) -> list[str]:
    """The command that runs a script with a runtime. Skips the test where that is not on PATH."""
    program, *arguments = COMMANDS[name]
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not on PATH")
    return [found, *arguments]
