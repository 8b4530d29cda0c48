"""The workflows of the pages on the real engine, each to its end: the days that they sleep pass at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runr_workflows import Workflows
from runr_workflows.endpoint import Endpoint

from tests.support.node import find_node
from tests.support.node_project import compile_with, install_sdk, serving_script
from tests.support.page_programs import LANGUAGE, STRICT, serving_page, write_server
from tests.support.page_stories import ENCRYPTED, STORIES, TYPESCRIPT, Story
from tests.support.pages import page
from tests.support.passing_time import ends_in_time, resting, time_passes, waits_of
from tests.support.rest import Rest
from tests.support.transports import only_over

over_http = only_over("http", because="what a page says holds for both languages, and TypeScript speaks HTTP")

TOLD = sorted({told.page for told in TYPESCRIPT})
PYTHON = sorted({story.page for story in STORIES if not story.page.startswith(("docs/patterns/", "docs/migrate/"))})


@over_http
@pytest.mark.parametrize("name", PYTHON)
async def test_the_python_of_a_page(rest: Rest, name: str) -> None:
    async with serving_page(rest, page(name)) as names:
        for story in STORIES:
            if story.page == name:
                await tell(rest, story, names["wf"])


async def tell(rest: Rest, story: Story, wf: Workflows) -> None:
    """Starts the workflow, sends what the story has for its wait, lets time pass, and compares what comes of it."""
    run = await rest.start(story.workflow, dict(story.data))
    sent: set[str] = set()
    while (found := await resting(rest, run))["ended_at"] is None:
        waits = [wait for wait in waits_of(found) if wait["id"] in story.answers.keys() - sent]
        for wait in waits:
            answer = await rest.send(wait["wait"]["event"], story.answers[wait["id"]]["data"])
            assert answer["resumed"] == 1
            sent.add(wait["id"])
        if not waits:
            await time_passes(rest, run)
    assert found["status"] == story.status, found
    output: Any = found["output"]
    if story.output is ENCRYPTED:
        assert list(output) == ["encrypted"]
        assert wf.endpoint(Endpoint).decoded(output) == "ADA"
    elif story.workflow == "close-day":
        assert [len(id) for id in output] == [26, 26]
    else:
        assert output == story.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the compiled pages; the first test fills it."""
    return tmp_path_factory.mktemp("how-to")


async def compiled(folder: Path) -> Path:
    """Every page as one module, compiled strictly once; the script that serves one of them."""
    server = folder / "server.js"
    if not server.exists():
        node = find_node()
        await install_sdk(node, folder)
        (folder / "package.json").write_text('{"type": "module"}')
        for name in TOLD:
            module(folder, name).write_text("\n".join(page(name).blocks("ts")))
        write_server(folder)
        await compile_with(node, folder, *STRICT, *LANGUAGE, "server.ts", *(module(folder, name).name for name in TOLD))
    return server


def module(folder: Path, name: str) -> Path:
    """Where the TypeScript of a page is."""
    return folder / f"{page(name).path.stem}.ts"


@over_http
@pytest.mark.parametrize("name", TOLD)
async def test_the_typescript_of_a_page(rest: Rest, folder: Path, name: str) -> None:
    server = await compiled(folder)
    async with serving_script(rest, server, PROGRAM=f"./{module(folder, name).stem}.js"):
        for told in TYPESCRIPT:
            if told.page != name:
                continue
            run = await rest.start(told.workflow, dict(told.data))
            for event, data in told.events:
                await resting(rest, run)
                await rest.send(event, dict(data))
            found = await ends_in_time(rest, run)
            assert told.wanted in (found["output"], found["status"]), found
