"""The functions of the pages about the Python client and about MCP, called against the real API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.page_programs import serving_page
from tests.support.pages import page
from tests.support.rest import Rest
from tests.support.transports import only_over


@only_over("http", because="clients ask the gateway, however their runs are executed")
async def test_the_page_does_what_it_says(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNR_API_URL", f"{rest.base}/api")
    monkeypatch.setenv("RUNR_TOKEN", rest.token)
    async with serving_page(rest, page("docs/how-to/client.md")) as names:
        (run,) = await asyncio.to_thread(names["tell"], "o-1")
        assert await asyncio.to_thread(names["tell"], "o-1") == [run]
        await rest.becomes(run, "waiting")
        assert await asyncio.to_thread(names["clean_up"]) == ["cancelled", "replay"]
        assert await asyncio.to_thread(names["refused"]) == (422, "invalid-input", "events[0].name")
        assert await asyncio.to_thread(names["pay"], "o-2") == "o-2 is paid"
        assert await names["pay_all"](["o-3", "o-4"]) == ["o-3 is paid", "o-4 is paid"]


@only_over("http", because="clients ask the gateway, however their runs are executed")
async def test_the_page_about_mcp_starts_a_run(rest: Rest) -> None:
    (block,) = page("docs/how-to/mcp.md").blocks("python")
    assert "http://127.0.0.1:8080" in block
    names: dict[str, Any] = {}
    exec(compile(block.replace("http://127.0.0.1:8080", rest.base), "mcp.md", "exec"), names)
    async with serving_page(rest, page("docs/tracing.md")):
        assert await rest.completed(await names["start"](rest.token)) is None
