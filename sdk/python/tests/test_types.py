"""The types of the SDK as mypy --strict sees them in user code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

TYPED = Path(__file__).parent / "typed"
SOURCE = Path(__file__).parents[1] / "src"


def mypy(path: Path, cache: Path) -> str:
    """The output of mypy for one file, away from this project's configuration."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", str(path)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={"MYPYPATH": str(SOURCE)}
    )
    return done.stdout + done.stderr


def test_step_calls_infer_their_types_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    lines = (TYPED / "bad.py.txt").read_text()
    (tmp_path / "bad.py").write_text(lines)

    good = mypy(TYPED / "good.py", tmp_path / "cache")
    bad = mypy(tmp_path / "bad.py", tmp_path / "cache")

    assert good.startswith("Success"), good
    expected = [number for number, line in enumerate(lines.splitlines(), 1) if line.endswith("# error")]
    found = {int(number) for number in re.findall(r"bad\.py:(\d+): error:", bad)}
    assert sorted(found) == expected, bad


def test_the_example_is_typed(tmp_path: Path) -> None:
    app = TYPED.parents[3] / "examples" / "workflows" / "orders" / "app.py"

    assert mypy(app, tmp_path).startswith("Success")
