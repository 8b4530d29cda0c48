"""The programs of the TypeScript SDK's README on the real engine; its quickstart is told by `test_node.py`."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.node import SDK, find_node
from tests.support.node_project import compile_with, install_sdk, run_node, serving_script
from tests.support.page_programs import LANGUAGE, STRICT, typescript_files, write_server
from tests.support.pages import ROOT, Page
from tests.support.passing_time import ends_in_time, time_is_up, waits_in_time
from tests.support.rest import Json, Rest, step_of
from tests.support.transports import only_over

over_http = only_over("http", because="the TypeScript SDK speaks HTTP")

README = Page(SDK / "README.md")
ORDER = {"order_id": "o-1", "total": 42}
SHIPPED = {"order_id": "o-1", "carrier": "dhl"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the compiled programs; `compiled` fills it."""
    return tmp_path_factory.mktemp("readme")


async def compiled(folder: Path) -> Path:
    """All programs, compiled strictly once; the script that serves one of them."""
    server = folder / "server.js"
    if not server.exists():
        node, files = find_node(), typescript_files([README])
        await install_sdk(node, folder)
        (folder / "package.json").write_text('{"type": "module"}')
        for name, text in files.items():
            (folder / name).write_text(text)
        write_server(folder)
        shutil.copy(ROOT / "tests" / "support" / "readme_doors.mjs", folder / "doors.mjs")
        await compile_with(node, folder, *STRICT, *LANGUAGE, "server.ts", *files)
    return server


async def orders(rest: Rest) -> None:
    lost = await rest.start("process-order", ORDER)
    assert (await ends_in_time(rest, lost))["output"] == {"shipped": False}
    assert step_of(await rest.run(lost), "refund")["output"] == 42
    assert await shipped(rest) == {"shipped": True}


async def shipped(rest: Rest) -> Json:
    """What comes of an order that is shipped."""
    (run,) = (await rest.send("order.created", ORDER))["runs"]
    await waits_in_time(rest, run)
    assert (await rest.send("order.shipped", SHIPPED))["resumed"] == 1
    output: Json = await rest.completed(run)
    return output


async def steps(rest: Rest) -> None:
    await rest.ok("POST", f"/projects/{rest.project}/schedules/close-day/0/trigger", {})
    (day,) = await rest.runs("?workflow=close-day")
    await waits_in_time(rest, day["id"])
    assert (await rest.send("day.approved", {"total": 6, "by": "Ada"}))["resumed"] == 1
    assert await rest.completed(day["id"]) == {"total": 6, "by": "Ada"}


async def import_rows(rest: Rest) -> None:
    assert await rest.completed(await rest.start("import-rows", {"rows": ["a", "bc"], "customer": "c-1"})) == 3


async def book_trip(rest: Rest) -> None:
    booked = await ends_in_time(rest, await rest.start("book-trip", {"rooms": 1}))
    full = await ends_in_time(rest, await rest.start("book-trip", {"rooms": 0}))
    assert booked["output"] == {"booked": True, "why": None}
    assert len(step_of(booked, "hotel")["attempts"]) == 2
    assert full["output"] == {"booked": False, "why": "fully booked"}


async def encryption(rest: Rest) -> None:
    run = await rest.end(await rest.start("pay", {"card": "4111"}))
    output = {name: base64.b64decode(value) for name, value in run["output"].items()}
    assert json.loads(AESGCM(bytes(32)).decrypt(output["iv"], output["sealed"], None)) == "paid by 4111"
    assert "4111" not in json.dumps(run["steps"])


async def hello(rest: Rest) -> None:
    assert await rest.completed(await rest.start("hello", {"name": "Ada"})) == "Hello, Ada!"


async def places_an_order(rest: Rest) -> None:
    assert await shipped(rest) == {"shipped": True}


Story = Callable[[Rest], Awaitable[None]]
PROGRAMS: dict[str, Story] = {
    "orders.ts": orders,
    "steps.ts": steps,
    "import-rows.ts": import_rows,
    "book-trip.ts": book_trip,
    "encryption.ts": encryption,
}
DOORS: dict[str, tuple[str, Story]] = {
    "parts": ("parts.ts", places_an_order),
    "handler": ("parts.ts", places_an_order),
    "worker": ("worker.ts", hello),
}
CLIENT = "client.ts"
"""It is told by the last test."""


@over_http
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_program(rest: Rest, folder: Path, name: str) -> None:
    server = await compiled(folder)
    async with serving_script(rest, server, PROGRAM=f"./{Path(name).stem}.js"):
        await PROGRAMS[name](rest)


@over_http
@pytest.mark.parametrize("door", DOORS)
async def test_a_way_to_serve(rest: Rest, folder: Path, door: str) -> None:
    doors = (await compiled(folder)).with_name("doors.mjs")
    async with serving_script(rest, doors, DOOR=door):
        await DOORS[door][1](rest)


@over_http
async def test_the_client(rest: Rest, folder: Path) -> None:
    """The program waits for a run that begins in 10 s, sleeps 10 m, and is told too early that it was shipped."""
    server = await compiled(folder)
    program = "const { placeAndShip } = await import('./client.js'); await placeAndShip(...process.argv.slice(1));"
    async with serving_script(rest, server, PROGRAM="./orders.js"):
        late = await rest.start("process-order", {"order_id": "o-3", "total": 1})
        await time_is_up(rest, late)
        command = ("--input-type=module", "-e", program, rest.base, rest.token)
        telling = asyncio.create_task(run_node(find_node(), *command, cwd=folder))
        (run, _) = await rest.until(lambda: rest.runs("?workflow=process-order"), lambda found: len(found) == 2)
        assert (await ends_in_time(rest, run["id"]))["output"] == {"shipped": False}
        assert await telling == f"false false\n{late} timed_out undefined\n"
        (again, *_) = await rest.runs("?workflow=process-order")
        assert (again["status"], again["source"], again["replay_of_run_id"]) == ("cancelled", "replay", run["id"])
        assert (await rest.run(late))["ended_at"] is None
