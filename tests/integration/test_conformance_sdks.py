"""`runr conformance` finds nothing wrong with either SDK, over the servers that they come with."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from services.cli.conformance.table import RULES
from tests.support.function_process import conformance, names, serving
from tests.support.node import SDK, find_node

APPS = "sdk.python.tests.conformance_"


async def test_the_python_sdk_with_sync_workflows() -> None:
    async with serving([sys.executable, "-m", f"{APPS}sync", "0"]) as url:
        code, said = await conformance(url)
    assert [rule for rule in said["rules"] if rule["state"] == "failed"] == []
    # Sync code starts no steps together.
    assert (code, names(said, "not applicable")) == (0, ["steps-together"])


async def test_the_python_sdk_with_async_workflows() -> None:
    async with serving([sys.executable, "-m", f"{APPS}async", "0"]) as url:
        code, said = await conformance(url, "--complete")
    assert [rule for rule in said["rules"] if rule["state"] != "ok"] == []
    assert (code, names(said, "ok")) == (0, [rule.name for rule in RULES])
    assert said["requests"] < 300


async def test_the_typescript_sdk(tmp_path: Path) -> None:
    node, compiler = find_node(), SDK / "node_modules" / "typescript" / "bin" / "tsc"
    assert compiler.exists(), "the compiler of the TypeScript SDK is not installed: make node"
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command = (node.program, compiler, "-p", "tsconfig.tests.json", "--outDir", tmp_path)
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=SDK, env=node.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()

    async with serving([node.program, tmp_path / "tests" / "conformance.js"], cwd=SDK) as url:
        code, report = await conformance(url, "--complete")
    assert [rule for rule in report["rules"] if rule["state"] != "ok"] == []
    assert (code, names(report, "ok")) == (0, [rule.name for rule in RULES])
