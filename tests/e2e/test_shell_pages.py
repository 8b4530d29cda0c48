"""The shell blocks of the pages, run in bash against the real API, with the workflows of the pages behind it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.page_programs import serving_page
from tests.support.page_shell import PageShell
from tests.support.pages import page
from tests.support.passing_time import ends_in_time
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import signing_key

over_http = only_over("http", because="the pages call the API alone")


class Scene(NamedTuple):
    """What is done with the shell blocks of a page, and the page whose workflows are served meanwhile."""

    story: Callable[[Rest, PageShell], Awaitable[None]]
    served: str


async def access(rest: Rest, shell: PageShell) -> None:
    slug = f"acme-{rest.tenant}"
    people = (("ann@example.com", f"ann@{slug}.example"), ("acme --", f"{slug} --"))
    assert f"{slug}:owner" in (await shell.block(0, *people, DATABASE_URL=rest.database_url)).out
    assert (await shell.block(1)).statuses == [201, 200, 200]
    assert (await shell.block(2)).statuses == [200, 200]
    assert (await shell.block(3, ("X-Tenant-ID: default", f"X-Tenant-ID: {rest.tenant}"))).statuses == [200, 200]


async def bulk(rest: Rest, shell: PageShell) -> None:
    await rest.start("ship", {"order_id": "o-1"}, tags=["import-7"])
    assert (await shell.block(0)).statuses == [200]
    known = {"action": "replay", "filter": {"workflow": "ship", "status": "completed"}}
    job = (await rest.ok("POST", f"/projects/{rest.project}/runs/bulk", known))["id"]
    (started, *read, stopped) = (await shell.block(1, JOB=job)).statuses
    assert (started, read) == (202, [200, 200])
    assert stopped in (200, 409)  # there is nothing to stop, if it is done by then


async def cancel(rest: Rest, shell: PageShell) -> None:
    run = await rest.start("deliver", {"order_id": "o-1"})
    assert (await shell.block(0, RUN=run)).statuses == [200, 409]
    assert (await rest.run(run))["status"] == "cancelled"


async def command_line(rest: Rest, shell: PageShell) -> None:
    run = await rest.start("hello", {"name": "Mary"})
    said = await shell.block(0, ("01KB8V2T1XQ4T5S0Z6WJ7N8M9P", run))
    assert '"HELLO, ADA!"' in said.out
    assert f"Run {run} of hello" in said.out
    assert "  created hello, api" in said.out
    assert "0 runs" in (await shell.block(1, ("ship", "hello"))).out
    (shell.folder / "token.txt").write_text(rest.token)
    kept = await shell.block(2, ("https://runr.example.com", rest.base))
    assert f"prod is the current context: {rest.base} as a token of the installation" in kept.out
    assert run in kept.out
    made = (shell.folder / "deploy.token").read_text().strip()
    assert "deploy" in kept.out
    assert made not in kept.out
    assert (await rest.call("GET", "/projects", token=made)).status == 200
    assert (await rest.call("POST", "/projects", {"slug": "p"}, token=made)).status == 403


async def cron(rest: Rest, shell: PageShell) -> None:
    assert (await shell.block(0)).statuses == [200, 200, 201, 200]
    assert len(await rest.runs("?workflow=daily-report")) == 4


async def delayed_starts(rest: Rest, shell: PageShell) -> None:
    assert (await shell.block(0)).statuses == [201, 201]
    for run in await rest.runs():
        assert (await ends_in_time(rest, run["id"]))["output"] == "mail to u-1"


async def deploy(rest: Rest, shell: PageShell) -> None:
    await rest.becomes(await rest.start("order", {"order_id": "o-1"}), "sleeping")
    app = await rest.ok("GET", f"/projects/{rest.project}/workflows/app")
    said = await shell.block(0, ("http://127.0.0.1:8001/", app["endpoint_url"]))
    assert "1 active run of default, 0 would diverge" in said.out


async def idempotency(rest: Rest, shell: PageShell) -> None:
    assert (await shell.block(0)).statuses == [201]
    assert (await shell.block(0)).statuses == [200]
    (run,) = await rest.runs()
    assert await rest.completed(run["id"]) == "refunded p-1"


async def queue(rest: Rest, shell: PageShell) -> None:
    told = await shell.block(0)
    assert told.statuses == [200, 200]
    token = re.search(r'"queue_bridge_url":"[^"]*/queue/[^/"]*/[^/"]*/([^/"]+)"', told.out)
    assert token is not None, told.out
    bridge = ("queue/default/default", f"queue/{rest.tenant}/{rest.project}")
    assert (await shell.block(2, bridge, QUEUE_TOKEN=token[1])).statuses == [200]
    (run,) = await rest.runs()
    assert await rest.completed(run["id"]) == "o-1: 1250"
    assert (await shell.block(3)).statuses == [200]
    assert (await shell.block(1)).statuses == [200]


async def retention(rest: Rest, shell: PageShell) -> None:
    await rest.completed(await rest.start("hello"))
    used = await shell.block(0)
    assert used.statuses == [200, 200]
    assert '"total":{"runs":1,"steps":1}' in used.out


async def retries(rest: Rest, shell: PageShell) -> None:
    run = await ends_in_time(rest, await rest.start("make-invoice"))
    assert (run["status"], run["error"]["name"]) == ("failed", "KeyError")
    since = ("2026-10-31T08:00:00Z", run["created_at"])
    assert "1 run" in (await shell.block(0, since)).out


async def retry_and_replay(rest: Rest, shell: PageShell) -> None:
    run = await rest.start("order", {"order_id": "o-1"}, delay="1h")
    await rest.ok("POST", f"/runs/{run}/cancel", {})
    assert (await shell.block(0, RUN=run)).statuses == [200]
    assert await rest.completed(run) == "charged o-1"
    assert (await shell.block(1, RUN=run)).statuses == [201, 201, 201]
    outputs = [await rest.completed(each["id"]) for each in await rest.runs()]
    assert sorted(outputs) == ["charged o-1"] * 3 + ["charged o-2"]


async def send_events(rest: Rest, shell: PageShell) -> None:
    assert '"duplicate":false' in (await shell.block(0)).out
    assert '"duplicate":true' in (await shell.block(0)).out


async def serve_functions(rest: Rest, shell: PageShell) -> None:
    app = await rest.ok("GET", f"/projects/{rest.project}/workflows/app")
    shown = await shell.block(0)
    assert shown.statuses == [200]
    assert await signing_key(rest) in shown.out
    patched = await shell.block(1, ("https://functions.example.com/orders", app["endpoint_url"]))
    assert '"status":"synced"' in patched.out
    assert (await shell.block(2)).statuses == [200]
    (shell.folder / "app.py").write_text("\n".join(page("docs/how-to/serve-functions.md").blocks("python")))
    assert "hello" in (await shell.block(3)).out
    assert (await shell.block(4)).statuses == [200]
    assert (await shell.block(5)).statuses == [200]


async def approval(rest: Rest, shell: PageShell) -> None:
    filed = {"expense_id": "e-1", "amount": 30, "managers": ["Grace"]}
    (run,) = (await rest.send("expense.filed", filed))["runs"]
    assert (await shell.block(0)).statuses == [200]
    assert await rest.completed(run) == {"approved": True, "by": "Grace"}


async def backfill(rest: Rest, shell: PageShell) -> None:
    assert '"total":3,"started":3' in (await shell.block(0)).out


HOW_TO = "docs/how-to"
SCENES = {
    f"{HOW_TO}/access.md": Scene(access, f"{HOW_TO}/serve-functions.md"),
    f"{HOW_TO}/bulk.md": Scene(bulk, f"{HOW_TO}/wait-for-events.md"),
    f"{HOW_TO}/cancel.md": Scene(cancel, f"{HOW_TO}/cancel.md"),
    f"{HOW_TO}/command-line.md": Scene(command_line, "README.md"),
    f"{HOW_TO}/cron.md": Scene(cron, f"{HOW_TO}/cron.md"),
    f"{HOW_TO}/delayed-starts.md": Scene(delayed_starts, f"{HOW_TO}/delayed-starts.md"),
    f"{HOW_TO}/deploy-changed-code.md": Scene(deploy, f"{HOW_TO}/deploy-changed-code.md"),
    f"{HOW_TO}/idempotency.md": Scene(idempotency, f"{HOW_TO}/idempotency.md"),
    f"{HOW_TO}/queue.md": Scene(queue, f"{HOW_TO}/queue.md"),
    f"{HOW_TO}/retention.md": Scene(retention, f"{HOW_TO}/serve-functions.md"),
    f"{HOW_TO}/retries-and-errors.md": Scene(retries, f"{HOW_TO}/invoke.md"),
    f"{HOW_TO}/retry-and-replay.md": Scene(retry_and_replay, f"{HOW_TO}/retry-and-replay.md"),
    f"{HOW_TO}/send-events.md": Scene(send_events, f"{HOW_TO}/send-events.md"),
    f"{HOW_TO}/serve-functions.md": Scene(serve_functions, f"{HOW_TO}/serve-functions.md"),
    "docs/patterns/approval.md": Scene(approval, "docs/patterns/approval.md"),
    "docs/patterns/cron.md": Scene(backfill, "docs/patterns/cron.md"),
}
"""By page; each runs all shell blocks of it."""


@over_http
@pytest.mark.parametrize("name", SCENES)
async def test_the_shell_of_a_page(rest: Rest, tmp_path: Path, name: str) -> None:
    shell = PageShell(rest, page(name), tmp_path)
    async with serving_page(rest, page(SCENES[name].served)):
        await SCENES[name].story(rest, shell)
    assert shell.run == set(range(len(page(name).blocks("sh"))))


@only_over("stream", because="the page is about workers")
async def test_the_worker_of_the_page_about_connecting(rest: Rest, tmp_path: Path) -> None:
    """Its shell block starts it; the one before it installs packages, as the quickstart does."""
    (tmp_path / "worker.py").write_text("\n".join(page("docs/how-to/connect.md").blocks("python")))
    block = page("docs/how-to/connect.md").blocks("sh")[1]
    for word, instead in (("127.0.0.1:…", rest.worker_urls[0]), ("wfsk_…", await signing_key(rest))):
        assert word in block
        block = block.replace(word, instead)
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-euc",
        block.replace("\npython ", "\nexec python "),
        cwd=tmp_path,
        env={**PageShell(rest, page("docs/how-to/connect.md"), tmp_path).environ, "RUNR_TENANT": rest.tenant},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await rest.until(lambda: rest.ok("GET", f"/projects/{rest.project}/workflows"), lambda found: found["data"])
        assert await rest.completed(await rest.start("quote")) == 11
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    finally:
        if process.returncode is None:
            process.kill()
        assert process.stderr is not None
        sys.stderr.write((await process.stderr.read()).decode())
