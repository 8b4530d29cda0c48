"""The quickstart of the README, block by block in a shell, in an empty folder, against the real engine."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.pages import ROOT, page
from tests.support.rest import Rest
from tests.support.stack import Stack
from tests.support.transports import only_over

pytestmark = only_over("http", because="the page serves its function over HTTP")

MARK = "=== the end of a block ==="
BLOCK_S = 120.0
BACKEND = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")
"""What pip would fetch to build the SDK."""


async def test_the_quickstart_works_as_it_is_written(stack: Stack, rest: Rest, tmp_path: Path) -> None:
    checkout, port = stand_in(tmp_path, rest), stack.home.port("quickstart")
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-eu",
        cwd=checkout,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), **without_registry(tmp_path / "backend")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        dev, go_there, install, serve, register, start, look, send = [
            text.replace("8000", str(port)) for text in blocks("sh")
        ]
        assert dev == "make dev\n"  # the fixture's stack stands for it
        await say(shell, go_there)
        assert "Successfully installed runr-workflows" in await say(shell, install)
        (tmp_path / "home" / "hello" / "hello.py").write_text(blocks("python")[0].replace("8000", str(port)))
        served = await say(shell, serve)
        assert f"serving workflows hello on http://127.0.0.1:{port}" in served
        assert json.loads(await say(shell, register))["sync"]["status"] == "synced"
        result = json.loads(await say(shell, start))
        assert (result["status"], result["output"]) == ("completed", "HELLO, ADA!")
        assert '"status":"completed","ended":true,"output":"HELLO, ADA!"' in page("README.md").text
        shown = await say(shell, look)
        assert re.findall(r"^  (\w+) +(?:run|sleep) +completed ", shown, re.MULTILINE) == ["greet", "pause", "shout"]
        sent = json.loads(await say(shell, send))
        assert await rest.completed(sent["events"][0]["runs"][0]) == "HELLO, GRACE!"
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        await shell.wait()


def blocks(language: str) -> list[str]:
    """The blocks of the section "Quickstart"."""
    section = page("README.md").text.partition("\n## Quickstart\n")[2].partition("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def stand_in(folder: Path, rest: Rest) -> Path:
    """What the quickstart uses of a checkout: its environment, and what `runr dev` says about itself."""
    checkout = folder / "checkout"
    (checkout / ".runr").mkdir(parents=True)
    (checkout / ".runr" / "stack.json").write_text(json.dumps({"api_url": rest.base, "token": rest.token}))
    (checkout / ".venv" / "bin").mkdir(parents=True)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (checkout / ".venv" / "bin" / "runr").symlink_to(Path(sys.executable).parent / "runr")
    shutil.copytree(ROOT / "sdk" / "python", checkout / "sdk" / "python", ignore=shutil.ignore_patterns("tests"))
    return checkout


def without_registry(folder: Path) -> dict[str, str]:
    """The environment in which pip builds with what is installed here, and asks nobody."""
    folder.mkdir()
    for name in BACKEND:
        found = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (folder / top).symlink_to(Path(str(found.locate_file(top))))
    # pip reads the second one as the value of `build-isolation`.
    return {"PYTHONPATH": str(folder), "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}


async def say(shell: asyncio.subprocess.Process, block: str) -> str:
    """What a block prints."""
    assert shell.stdin is not None
    assert shell.stdout is not None
    shell.stdin.write(f"{block}\necho '{MARK}'\n".encode())
    lines: list[str] = []
    async with asyncio.timeout(BLOCK_S):
        while (line := (await shell.stdout.readline()).decode()).strip() != MARK:
            assert line, f"the shell has ended in:\n{block}"
            assert MARK not in line, f"a prompt would stick to what this says:\n{block}"
            lines.append(line)
    return "".join(lines).strip()
