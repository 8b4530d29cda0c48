"""The functions of the page about the Python client, called against the real API."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest
import runr_workflows

from tests.support.pages import page
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving


@only_over("http", because="clients ask the gateway, however their runs are executed")
async def test_the_page_does_what_it_says(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("example")
    names: dict[str, Any] = module.__dict__

    def register(wf: runr_workflows.Workflows, bodies: Bodies) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(runr_workflows, "Workflows", lambda: wf)
            for number, block in enumerate(page("docs/how-to/client.md").blocks("python"), 1):
                exec(compile(block, f"client.md block {number}", "exec"), names)

    monkeypatch.setenv("RUNR_API_URL", f"{rest.base}/api")
    monkeypatch.setenv("RUNR_TOKEN", rest.token)
    async with serving(rest, register):
        (run,) = await asyncio.to_thread(names["tell"], "o-1")
        assert await asyncio.to_thread(names["tell"], "o-1") == [run]
        await rest.becomes(run, "waiting")
        assert await asyncio.to_thread(names["clean_up"]) == ["cancelled", "replay"]
        assert await asyncio.to_thread(names["refused"]) == (422, "invalid-input", "events[0].name")
        assert await asyncio.to_thread(names["pay"], "o-2") == "o-2 is paid"
        assert await names["pay_all"](["o-3", "o-4"]) == ["o-3 is paid", "o-4 is paid"]
