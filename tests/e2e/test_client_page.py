"""The functions of the page about the Python client, called against the real API."""

from __future__ import annotations

import asyncio

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
