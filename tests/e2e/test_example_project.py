"""`examples/workflows/orders`, copied as a project of a user: its types, its tests, and its runs on the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from services.core.runtime.python_child import python_environ
from tests.support import function_process
from tests.support.node import SDK, find_node
from tests.support.node_project import run_node
from tests.support.pages import ROOT, pages
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import sync

PROJECT = ROOT / "examples" / "workflows" / "orders"

SOURCE = ROOT / "sdk" / "python" / "src"
PATIENCE_S = 120.0
TYPED = ("docs/patterns/", "docs/migrate/", "sdk/python/")


@only_over("http", because="the example serves HTTP")
async def test_a_project_of_a_user(rest: Rest, tmp_path: Path) -> None:
    folder = tmp_path / "orders"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    environ = {"RUNR_WORKFLOW_SIGNING_KEY": shown["signing_key"], "ORDERS_FRAUD_CHECK": "300ms"}
    known = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token, "ORDERS_PROJECT": rest.project}
    serve = [sys.executable, "app.py", "--host", "127.0.0.1", "--port", "0"]
    async with function_process.serving(serve, cwd=folder, environ=environ) as url:
        await rest.ok("PATCH", f"/projects/{rest.project}/workflows/app", {"endpoint_url": url})
        assert await sync(rest) == ["process-order"]
        placed = await run(folder, "place_order.py", "o-1", "42", **known)
        again = await run(folder, "place_order.py", "o-1", "42", **known)
        refused = await run(folder, "place_order.py", "o-2", "-1", **known)
    (failed, done) = await rest.runs()
    assert placed == f"started {done['id']}\nshipped\n"
    assert again == f"o-1 was placed before: {done['id']}\nshipped\n"
    assert refused == f"started {failed['id']}\nfailed: total must be a number that is not negative, not -1.0\n"
    history = tmp_path / "history.json"
    history.write_bytes((await rest.call("GET", f"/runs/{done['id']}")).body)
    told = await run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", ORDERS_HISTORY=str(history))
    assert re.search(r"^5 passed", told, re.MULTILINE), told


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """The project, with programs of pages as modules beside it: on patterns, on migrating, and of the SDK's README."""
    folder = tmp_path / "orders"
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for each in pages():
        if each.name.startswith(TYPED) and each.blocks("python"):
            (folder / f"of_{each.path.stem.replace('-', '_')}.py").write_text("\n\n".join(each.blocks("python")))
    shutil.copy(ROOT / "sdk" / "python" / "tests" / "typed" / "good.py", folder / "of_good_types.py")
    return folder


async def test_its_types_pass_mypy(typed: Path) -> None:
    said = await run(typed, "-m", "mypy", "--strict", "--cache-dir", str(typed.parent / "cache"), ".")
    assert said == "Success: no issues found in 15 source files\n"


async def test_its_types_pass_pyright(typed: Path) -> None:
    program = SDK / "node_modules" / "pyright" / "index.js"
    assert program.exists(), "pyright is not installed: make node"
    site = Path(pytest.__file__).parents[1]
    strict = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(SOURCE), str(site)]}
    (typed / "pyrightconfig.json").write_text(json.dumps(strict))
    said = await run_node(find_node(), program, "--outputjson", cwd=typed)
    assert json.loads(said)["summary"]["filesAnalyzed"] == 15


async def run(folder: Path, *arguments: str, **environ: str) -> str:
    """What a program says on stdout; it must end well."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=folder,
        env={**python_environ(os.environ), "PYTHONPATH": str(SOURCE), "MYPYPATH": str(SOURCE), **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            said = (await process.communicate())[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said
    return said
