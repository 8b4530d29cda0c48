"""The programs of a page, in both languages, as its reader would write them down."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import runr_workflows

from tests.support.pages import Page
from tests.support.workflow_app import Bodies, Register

STRICT = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noImplicitReturns")
LANGUAGE = ("--module", "nodenext", "--target", "es2022", "--types", "node")

_NAMED = re.compile(r"// (\S+\.ts)\n")


def python_program(page: Page, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Executes the Python of a page as one module, with the registry of a test as its `Workflows()`."""

    def register(wf: runr_workflows.Workflows, bodies: Bodies) -> None:
        module = ModuleType("example")
        names: dict[str, Any] = module.__dict__
        with monkeypatch.context() as patch:
            patch.setattr(runr_workflows, "Workflows", lambda: wf)
            for number, block in enumerate(page.blocks("python"), 1):
                exec(compile(block, f"{page.name} block {number}", "exec"), names)

    return register


def typescript_files(pages: Iterable[Page]) -> dict[str, str]:
    """File name → text of all TypeScript programs of some pages. Each block names its file in its first line."""
    files: dict[str, str] = {}
    for page in pages:
        for block in page.blocks("ts"):
            named = _NAMED.match(block)
            assert named is not None, f"{page.name}: a block of TypeScript begins with the name of its file"
            assert named[1] not in files, f"{page.name}: there are two files {named[1]}"
            files[named[1]] = block
    return files


def write_server(folder: Path) -> Path:
    """`node server.js NAME.js` serves the registry `wf` of a program; the path of the compiled script."""
    server = folder / "server.ts"
    server.write_text('const { wf } = await import(process.env["PROGRAM"] ?? "");\nawait wf.serve({ port: 0 });\n')
    return server.with_suffix(".js")
