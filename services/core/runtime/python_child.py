"""Starting another process of this program: same interpreter, same code, whatever the current folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs `module`. -P keeps the current folder from standing in for our packages."""
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with our code first on the import path, so that a checkout runs as an installation does."""
    ours = [_ROOT, _ROOT / "proto" / "gen" / "python"]
    path = [*(str(folder) for folder in ours if folder.is_dir()), environ.get("PYTHONPATH", "")]
    return {**environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}
