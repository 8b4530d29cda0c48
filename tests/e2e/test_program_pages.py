"""The programs of the pages about patterns and about migrating: the same story is told to both languages."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.node import find_node
from tests.support.node_project import compile_with, install_sdk, serving_script
from tests.support.page_programs import LANGUAGE, STRICT, serving_page, typescript_files, write_server
from tests.support.pages import ROOT, Page, page
from tests.support.rest import Json, Rest, steps_of
from tests.support.transports import only_over

over_http = only_over("http", because="the same code is there in TypeScript, whose SDK speaks HTTP")

Story = Callable[[Rest], Awaitable[None]]
PAGES = [
    Page(path)
    for folder in ("patterns", "migrate")
    for path in sorted((ROOT / "docs" / folder).glob("*.md"))
    if path.name != "README.md"
]


async def saga(rest: Rest) -> None:
    booked = await rest.start("book-trip", {"full": []})
    refused = await rest.start("book-trip", {"full": ["car"]})
    assert await rest.completed(booked) == {"booked": True, "why": None}
    assert await rest.completed(refused) == {"booked": False, "why": "no car is left"}
    assert list(steps_of(await rest.run(booked))) == ["book-flight", "book-hotel", "book-car"]
    undone = steps_of(await rest.run(refused))
    assert list(undone)[3:] == ["cancel-car", "cancel-hotel", "cancel-flight"]
    assert [step for step, status in undone.items() if status == "failed"] == ["book-car"]


async def approval(rest: Rest) -> None:
    expense = {"expense_id": "e-1", "amount": 30, "managers": ["Grace", "Ada"]}
    (asked,) = (await rest.send("expense.filed", expense))["runs"]
    await rest.becomes(asked, "waiting")
    assert (await rest.send("expense.answered", {"expense_id": "e-2", "approved": True, "by": "Grace"}))["resumed"] == 0
    assert (await rest.send("expense.answered", {"expense_id": "e-1", "approved": True, "by": "Grace"}))["resumed"] == 1
    assert await rest.completed(asked) == {"approved": True, "by": "Grace"}
    assert list(steps_of(await rest.run(asked))) == ["ask", "answer", "pay"]

    ignored = await rest.start("approve-expense", {**expense, "expense_id": "e-3", "answer_within": "200ms"})
    assert await rest.completed(ignored) == {"approved": False, "by": None}
    assert list(steps_of(await rest.run(ignored))) == ["ask", "answer", "ask:1", "answer:1", "tell"]


async def fan_out(rest: Rest) -> None:
    skus = ["a", "bb", "unknown", "dddd"]
    (parent,) = (await rest.send("catalog.published", {"import_id": "i-1", "skus": skus}))["runs"]
    assert await rest.completed(parent) == {"total": 7, "failed": ["unknown"], "complete": True}
    children = await rest.runs("?workflow=price-sku")
    assert [child["status"] for child in children] == ["completed"] * 4


async def polling(rest: Rest) -> None:
    (run,) = (await rest.send("export.asked", {"table": "orders"}))["runs"]
    assert await rest.completed(run) == "https://files.example.com/job-orders"
    assert list(steps_of(await rest.run(run))) == ["begin", "look", "pause", "look:1", "pause:1", "look:2"]


async def cron(rest: Rest) -> None:
    days = {"from": "2026-06-01T00:00:00Z", "to": "2026-06-04T00:00:00Z"}
    backfill = f"/projects/{rest.project}/schedules/day-totals/0/backfill"
    assert await rest.ok("POST", backfill, days) == {"total": 3, "started": 3, "skipped": 0}
    outputs = [await rest.completed(run["id"]) for run in await rest.runs("?workflow=day-totals")]
    assert sorted(outputs) == ["total of 01.06.2026", "total of 02.06.2026", "total of 31.05.2026"]
    assert await rest.ok("POST", backfill, days) == {"total": 3, "started": 0, "skipped": 3}


async def long_loops(rest: Rest) -> None:
    await rest.send("rows.to-copy", {"copy_id": "c-1", "last": 4_321})

    async def chain() -> list[Json]:
        return await rest.runs("?workflow=copy-rows")

    runs = await rest.until(chain, lambda found: [run["status"] for run in found] == ["completed"] * 3)
    assert [(await rest.run(run["id"]))["output"] for run in runs] == [4_321, 4_000, 2_000]
    told = await rest.until(lambda: rest.ok("GET", "/events?name=rows.copied"), lambda found: bool(found["data"]))
    event = await rest.ok("GET", f"/events/{told['data'][0]['id']}")
    assert event["data"] == {"copy_id": "c-1", "rows": 4_321}


async def order(rest: Rest) -> None:
    """That of three pages: started by its event where it has that trigger, else by name."""
    data = {"order_id": "o-1", "total": 42}
    sent = (await rest.send("order.created", data))["runs"]
    run = sent[0] if sent else await rest.start("order", data, idempotency_key="order-o-1")
    await rest.becomes(run, "waiting")
    assert (await rest.send("order.shipped", {"order_id": "o-1", "carrier": "dhl"}))["resumed"] == 1
    assert await rest.completed(run) == "shipped by dhl"
    assert list(steps_of(await rest.run(run))) == ["charge", "shipped"]


async def video(rest: Rest) -> None:
    run = await rest.start("publish-video", {"url": "https://example.com/a.mov"}, delay="200ms")
    assert await rest.completed(run) == "https://media.example.com/files/a.mov.webm"
    (schedule,) = (await rest.ok("GET", f"/projects/{rest.project}/schedules"))["data"]
    assert (schedule["workflow"], schedule["cron"]) == ("sweep", "0 3 * * *")


FRAMEWORKS = page("docs/how-to/web-frameworks-typescript.md")
STORIES: dict[str, Story] = {
    "docs/patterns/saga.md": saga,
    "docs/patterns/approval.md": approval,
    "docs/patterns/fan-out.md": fan_out,
    "docs/patterns/polling.md": polling,
    "docs/patterns/cron.md": cron,
    "docs/patterns/long-loops.md": long_loops,
    "docs/migrate/inngest.md": order,
    "docs/migrate/temporal.md": order,
    "docs/migrate/dbos.md": order,
    "docs/migrate/celery.md": video,
}
TOLD = [pytest.param(name, story, id=name) for name, story in STORIES.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the compiled programs; `programs` fills it."""
    return tmp_path_factory.mktemp("programs")


@asynccontextmanager
async def programs(folder: Path) -> AsyncIterator[Path]:
    """All programs in TypeScript, compiled strictly once; the script that serves one of them."""
    node, server = find_node(), folder / "server.js"
    if not server.exists():
        await install_sdk(node, folder)
        (folder / "package.json").write_text('{"type": "module"}')
        files = typescript_files([*PAGES, FRAMEWORKS])
        for name, text in files.items():
            (folder / name).write_text(text)
        write_server(folder)
        await compile_with(node, folder, *STRICT, *LANGUAGE, "server.ts", *files)
    yield server


def test_every_page_is_told() -> None:
    assert [each.name for each in PAGES if each.name not in STORIES] == []


@over_http
@pytest.mark.parametrize(("name", "story"), TOLD)
async def test_the_python_of_a_page(rest: Rest, name: str, story: Story) -> None:
    async with serving_page(rest, page(name)):
        await story(rest)


@over_http
@pytest.mark.parametrize(("name", "story"), TOLD)
async def test_the_typescript_of_a_page(rest: Rest, folder: Path, name: str, story: Story) -> None:
    (program,) = typescript_files([page(name)])
    async with programs(folder) as server, serving_script(rest, server, PROGRAM=f"./{program[:-3]}.js"):
        await story(rest)


@over_http
async def test_the_ways_to_serve_typescript(rest: Rest, folder: Path) -> None:
    async with programs(folder) as server:
        doors = server.with_name("doors.mjs")
        shutil.copy(ROOT / "tests" / "support" / "doors.mjs", doors)
        async with serving_script(rest, doors) as (function, served):
            assert served == ["hello"]
            for name in ("Ada", "Grace", "Mary", "Joan", "Hedy", "Rosa"):
                (run,) = (await rest.send("user.signed-up", {"name": name}))["runs"]
                assert await rest.completed(run) == f"Hello, {name}!"
            assert function.of("1 ").keys() == {"next", "module", "node", "transport", "hono", "express"}
