"""The workflows of the how-to pages on the real engine: to their end, or as far as they go without hours of waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.node import find_node
from tests.support.node_project import compile_with, install_sdk, serving_script
from tests.support.page_programs import LANGUAGE, STRICT, python_program, write_server
from tests.support.page_stories import ENCRYPTED, STORIES, Story
from tests.support.pages import ROOT, Page, page
from tests.support.rest import Json, Rest
from tests.support.transports import only_over
from tests.support.workflow_app import serving

over_http = only_over("http", because="what a page says holds for both languages, and TypeScript speaks HTTP")

ENDED = {"completed", "failed", "cancelled", "timed_out"}
RESTING = {"sleeping", "waiting", "retrying"}
ELSEWHERE = {"docs/how-to/client.md", "docs/how-to/middleware.md"}
"""`test_client_page.py`; `test_middleware.py`, since that page makes registries of its own."""
PYTHON = sorted({story.page for story in STORIES if story.page.startswith("docs/how-to/")} - ELSEWHERE)


class Told(NamedTuple):
    """A run of a page in TypeScript: the events that it waits for, and its output, or the status that it stays in."""

    page: str
    workflow: str
    data: Json
    wanted: Any
    events: Sequence[tuple[str, Json]] = ()


TYPESCRIPT = (
    Told("steps", "welcome", {"email": "a@b.c"}, ["intro to acc-a@b.c", "tips to acc-a@b.c"]),
    Told("retries-and-errors", "pay", {"card": "c-1"}, "queued"),
    Told("retries-and-errors", "pay", {"card": "stolen"}, "released 12A: the card is blocked"),
    Told("sleep", "remind", {"due": "2030-03-01T09:00:00Z"}, "sleeping"),
    Told(
        "wait-for-events",
        "ship",
        {"order_id": "o-1"},
        "ups",
        [("order.shipped", {"order_id": "o-1", "carrier": "ups"})],
    ),
    Told("send-events", "close-day", {"shop": "s"}, 1),
    Told("invoke", "bill", {"prices": [1, 2]}, 3),
    Told("idempotency", "refund", {"payment_id": "p-1"}, "refunded p-1"),
    Told("cancel", "deliver", {"order_id": "o-1"}, "cancelled", [("order.cancelled", {"order_id": "o-1"})]),
    Told("cron", "daily-report", {"scheduled_at": "9:00"}, "everything before 9:00"),
    Told("concurrency", "sync-customer", {"customer_id": "c-1"}, "pushed c-1"),
    Told("delayed-starts", "remind", {"user": "u-1"}, "mail to u-1"),
    Told("queue", "charge", {"order_id": "o-1", "cents": 1250}, "o-1: 1250"),
    Told("retry-and-replay", "order", {"order_id": "o-1"}, "charged r-o-1"),
    Told("checkpoint", "import", {"rows": ["a", "bc"]}, 3),
)


async def settled(rest: Rest, run: str) -> Json:
    """The run once it has ended, or a step of it sleeps, waits for an event, or waits to be tried again."""

    def rests(found: Json) -> bool:
        return found["status"] in ENDED or any(
            step["status"] in RESTING and not waits_for_a_child(step) for step in found["steps"]
        )

    return await rest.becomes(run, rests)


def waits_for_a_child(step: Json) -> bool:
    """Whether a step is an invoke."""
    return bool(step["kind"] == "invoke")


@over_http
@pytest.mark.parametrize("name", PYTHON)
async def test_the_python_of_a_page(rest: Rest, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with serving(rest, python_program(page(name), monkeypatch)):
        for story in STORIES:
            if story.page == name:
                await tell(rest, story)


async def tell(rest: Rest, story: Story) -> None:
    """Starts the workflow, gives its waits what the story has for them, and compares its output if it has ended."""
    run = await rest.start(story.workflow, dict(story.data))
    found = await settled(rest, run)
    if found["status"] == "waiting":
        (wait,) = [step for step in found["steps"] if step["status"] == "waiting"]
        answer: Mapping[str, Any] | None = story.answers.get(wait["id"])
        if answer is None:
            return
        assert (await rest.send(wait["wait"]["event"], answer["data"]))["resumed"] == 1
        found = await settled(rest, run)
    if found["status"] in ENDED:
        assert found["status"] == story.status, found
        assert story.output is not ENCRYPTED
        is_ids = story.workflow == "close-day"
        assert [len(each) for each in found["output"]] == [26, 26] if is_ids else found["output"] == story.output


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
        names = sorted({told.page for told in TYPESCRIPT})
        for name in names:
            (folder / f"{name}.ts").write_text("\n".join(Page(ROOT / f"docs/how-to/{name}.md").blocks("ts")))
        write_server(folder)
        await compile_with(node, folder, *STRICT, *LANGUAGE, "server.ts", *(f"{name}.ts" for name in names))
    return server


@over_http
@pytest.mark.parametrize("name", sorted({told.page for told in TYPESCRIPT}))
async def test_the_typescript_of_a_page(rest: Rest, folder: Path, name: str) -> None:
    async with serving_script(rest, await compiled(folder), PROGRAM=f"./{name}.js"):
        for told in TYPESCRIPT:
            if told.page != name:
                continue
            run = await rest.start(told.workflow, told.data)
            found = await settled(rest, run)
            for event, data in told.events:
                await rest.send(event, data)
                found = await rest.end(run)
            assert told.wanted in (found["output"], found["status"]), found


def test_every_page_with_typescript_is_told() -> None:
    """Pages whose blocks name their files are several modules, and told elsewhere."""
    found = (Page(path) for path in (ROOT / "docs" / "how-to").glob("*.md"))
    modules = {each.path.stem for each in found if each.blocks("ts") and not each.blocks("ts")[0].startswith("// ")}
    assert modules == {told.page for told in TYPESCRIPT}
