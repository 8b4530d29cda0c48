"""Each example of the documents is executed on the real engine by a test of `tests/e2e`, or it is said here why not.

What executes the blocks of a page is read from the tables that the tests go by; the rest is named, with the number of
its blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.e2e import test_how_to_pages, test_node_readme, test_program_pages, test_shell_pages, test_web_frameworks
from tests.support.page_programs import typescript_files
from tests.support.page_stories import STORIES, TYPESCRIPT
from tests.support.pages import ROOT, Page, page, pages

LANGUAGES = ("python", "ts", "sh", "py", "typescript")
"""Of blocks that are code; others are `text`, `json`, or what a program says."""
OF_THE_REPOSITORY = ("tests/README.md", "services/README.md", "proto/README.md", "deploy/README.md", "CHANGELOG.md")


class Named(NamedTuple):
    """So many blocks of a page, and the test that executes them, or the reason why the engine does not."""

    blocks: int
    by: str = ""
    because: str = ""


PEERS = "the code of the other product, which is to be replaced"
SIGNATURES = "signatures, made from the code by `make reference`"
PACKAGES = "installs packages, for which pip asks a registry; the quickstart installs the SDK from the checkout"
NAMED: dict[tuple[str, str], Named] = {
    ("README.md", "sh"): Named(9, by="tests/e2e/test_quickstart.py"),
    ("sdk/node/README.md", "sh"): Named(5, by="tests/e2e/test_node.py"),
    ("sdk/python/README.md", "sh"): Named(1, because=PACKAGES),
    ("docs/how-to/connect.md", "sh"): Named(2, by="tests/e2e/test_shell_pages.py"),
    ("docs/how-to/mcp.md", "python"): Named(1, by="tests/e2e/test_client_page.py"),
    ("docs/how-to/conformance.md", "sh"): Named(
        1, because="it needs no engine: tests/integration/test_bare_functions.py"
    ),
    ("examples/function-servers/README.md", "sh"): Named(3, by="tests/e2e/test_bare_functions.py"),
    ("docs/tracing.md", "sh"): Named(
        1, because="settings of `runr dev`, which tests/e2e/test_trace.py gives to the services"
    ),
    ("docs/performance.md", "sh"): Named(
        1, because="starts an engine, and takes half an hour: tests/unit/test_bench.py"
    ),
    ("CONTRIBUTING.md", "sh"): Named(2, because="CI itself, and what prints a page"),
    ("docs/migrate/celery.md", "py"): Named(1, because=PEERS),
    ("docs/migrate/dbos.md", "py"): Named(1, because=PEERS),
    ("docs/migrate/temporal.md", "py"): Named(1, because=PEERS),
    ("docs/migrate/inngest.md", "typescript"): Named(1, because=PEERS),
    ("docs/reference/python.md", "py"): Named(0, because=SIGNATURES),
    ("docs/reference/typescript.md", "typescript"): Named(0, because=SIGNATURES),
}

ELSEWHERE_IN_TYPESCRIPT = {
    "docs/how-to/client.md": "client.ts of sdk/node/README.md",
    "docs/how-to/middleware.md": "encryption.ts of sdk/node/README.md",
    "docs/how-to/testing.md": "orders.test.ts of sdk/node/README.md",
    "docs/how-to/serve-functions.md": "serve.ts, parts.ts and worker.ts of sdk/node/README.md",
    "docs/how-to/web-frameworks.md": "docs/how-to/web-frameworks-typescript.md",
    "docs/how-to/connect.md": "not there: docs/status.md",
    "docs/how-to/mcp.md": "a client of the protocol MCP, whose SDKs are not ours",
}
KIT = {"orders.test.ts": "tests with the kit, which has no engine: sdk/node/tests/package.test.ts"}
EXAMPLES = {
    "orders": "tests/e2e/test_example_project.py",
    "orders-ts": "tests/e2e/test_node.py",
}


def executed(language: str) -> set[str]:
    """The pages all of whose blocks of a language a test executes, by the tables that the tests go by."""
    if language == "python":
        frameworks = {test_web_frameworks.PAGE.name}
        return {*test_how_to_pages.PYTHON, *test_program_pages.STORIES, *frameworks}
    if language == "ts":
        several = {test_program_pages.FRAMEWORKS.name, test_node_readme.README.name}
        return {*test_how_to_pages.TOLD, *test_program_pages.STORIES, *several}
    return set(test_shell_pages.SCENES) if language == "sh" else set()


def blocks() -> Iterator[tuple[Page, str, int]]:
    """Page, language, and how many blocks of it the page has."""
    for each in pages():
        if each.name not in OF_THE_REPOSITORY:
            for language in LANGUAGES:
                if count := len(each.blocks(language)):
                    yield each, language, count


def test_each_block_is_executed_on_the_engine_or_it_is_said_why_not() -> None:
    left = {(each.name, language): count for each, language, count in blocks() if each.name not in executed(language)}
    assert left.keys() == NAMED.keys()
    assert {key: count for key, count in left.items() if NAMED[key].blocks not in (0, count)} == {}


@pytest.mark.parametrize(("name", "language"), NAMED)
def test_what_is_named_is_there(name: str, language: str) -> None:
    named = NAMED[name, language]
    assert (named.by == "") != (named.because == "")
    for path in re.findall(r"\b(?:tests|sdk)/[\w./-]+\.(?:py|ts)\b", f"{named.by} {named.because}"):
        assert (ROOT / path).exists(), path
    if named.by:
        said = (ROOT / named.by).read_text()
        assert name.rpartition("/")[2] in said or name.removesuffix("/README.md") in said, (
            f"{named.by} does not read {name}"
        )


@pytest.mark.parametrize("language", ["python", "ts"])
def test_each_workflow_of_a_page_has_a_run_on_the_engine(language: str) -> None:
    table = STORIES if language == "python" else TYPESCRIPT
    told = {(told.page, told.workflow) for told in table}
    pattern = r'@wf\.workflow\(\s*"([^"]+)"' if language == "python" else r'wf\.workflow\(\s*"([^"]+)"'
    for name in {told.page for told in table}:
        defined = {workflow for block in page(name).blocks(language) for workflow in re.findall(pattern, block)}
        assert {(name, workflow) for workflow in defined} <= told, name


def test_each_program_of_the_typescript_readme_is_told() -> None:
    quickstart = page("sdk/node/README.md").text.partition("\n## Quickstart\n")[2].partition("\nStart a run")[0]
    told = {*test_node_readme.PROGRAMS, *(program for program, _ in test_node_readme.DOORS.values()), *KIT}
    told |= {test_node_readme.CLIENT, *re.findall(r"^```ts\n// (\S+)$", quickstart, re.MULTILINE)}
    assert set(typescript_files([test_node_readme.README])) == told


def test_what_is_there_in_python_is_there_in_typescript() -> None:
    guides = ("docs/how-to/", "docs/patterns/", "docs/migrate/", "docs/tracing.md")
    alone = {
        each.name
        for each in pages()
        if each.name.startswith(guides) and each.blocks("python") and not each.blocks("ts")
    }
    assert alone == ELSEWHERE_IN_TYPESCRIPT.keys()


def test_each_example_project_is_run_by_a_story() -> None:
    folders = {path.name for path in (ROOT / "examples" / "workflows").iterdir() if path.is_dir()}
    assert folders == EXAMPLES.keys()
    for folder, test in EXAMPLES.items():
        assert f'"{folder}"' in (ROOT / test).read_text()
