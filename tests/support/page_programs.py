"""The programs of a page, in both languages, as its reader would write them down."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import runr_workflows
from runr_workflows import Workflows

from tests.support.pages import Page
from tests.support.rest import Rest
from tests.support.workflow_app import served, signing_key

STRICT = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--noImplicitReturns")
LANGUAGE = ("--module", "nodenext", "--target", "es2022", "--types", "node")

_NAMED = re.compile(r"// (\S+\.ts)\n")


def execute(page: Page, make: Callable[..., Workflows], *, until: str = "") -> dict[str, Any]:
    """Executes the Python of a page as one module, with `make` as its `Workflows`; the names that it has then.

    `until`: how the last block to be executed begins, where later ones use its names for something else.
    """
    module = ModuleType("example")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runr_workflows, "Workflows", make)
        patch.setenv("DJANGO_SETTINGS_MODULE", "tests.support.django_settings")
        for number, block in enumerate(page.blocks("python"), 1):
            exec(compile(block, f"{page.name} block {number}", "exec"), module.__dict__)
            if until and block.startswith(until):
                break
        else:
            assert not until, until
    return module.__dict__


@asynccontextmanager
async def serving_page(rest: Rest, page: Page) -> AsyncIterator[dict[str, Any]]:
    """The names of the Python of a page, whose workflows are served to the client's project, all as one registry."""
    key = await signing_key(rest)
    made: list[Workflows] = []

    def make(**options: Any) -> Workflows:
        if not made:
            made.append(Workflows(signing_key=key, signing_key_fallback="", **options))
        return made[0]

    names = execute(page, make)
    async with served(rest, made[0]):
        yield names


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
