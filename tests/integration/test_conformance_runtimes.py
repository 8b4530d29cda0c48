"""`runr conformance` and the TypeScript SDK under Deno and Bun, over node:http and over their own servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cli.conformance.table import RULES
from tests.support.function_process import conformance, names, serving
from tests.support.node import SDK, find_node
from tests.support.node_project import compile_with
from tests.support.runtimes import COMMANDS, runtime


@pytest.mark.parametrize("by_fetch", ["0", "1"], ids=["node:http", "fetch"])
@pytest.mark.parametrize("name", COMMANDS)
async def test_the_typescript_sdk(tmp_path: Path, name: str, by_fetch: str) -> None:
    command = runtime(name)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    await compile_with(find_node(), SDK, "-p", "tsconfig.tests.json", "--outDir", tmp_path)
    server = [*command, str(tmp_path / "tests" / "conformance.js")]
    async with serving(server, environ={"BY_FETCH": by_fetch}) as url:
        code, report = await conformance(url, "--complete")
    assert [rule for rule in report["rules"] if rule["state"] != "ok"] == []
    assert (code, names(report, "ok")) == (0, [rule.name for rule in RULES])
