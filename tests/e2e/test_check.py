"""`runr workflows check --against-active`: active runs against code that is not deployed yet, on the real engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from runr_workflows import Context, Step, StepError, Workflows
from runr_workflows.serving.server import Server

from services.cli.check import command
from services.cli.failure import Failure
from tests.support.fake_function import FakeFunction
from tests.support.rest import Rest
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, registry, serving

pytestmark = only_over("http", because="code that is to be checked is asked over HTTP")

BIG = 12345678901234567890123


def deployed(wf: Workflows, bodies: Bodies) -> None:
    """The code of now."""

    @wf.workflow("order", retries=5)
    def order(ctx: Context, step: Step) -> Any:
        reserved = step.run("reserve", lambda: {"big": BIG, "float": 1.0})
        try:
            step.options(retries=0).run("charge", fail)
        except StepError:
            step.run("note", bodies.record, ctx.run_id, "note")
        step.sleep("cool-off", "1h")
        return reserved

    @wf.workflow("ship")
    def ship(ctx: Context, step: Step) -> None:
        step.run("pack", bodies.record, ctx.run_id, "pack")
        step.wait_for_event("shipped", "order.shipped")

    @wf.workflow("pay", retries=5)
    def pay(ctx: Context, step: Step) -> None:
        step.options(retries=5).run("bank", fail)


def fail() -> None:
    raise RuntimeError("the bank is away")


def unchanged_in_effect(wf: Workflows, executed: list[str]) -> None:
    """Other code that goes the same way, with more behind it."""

    @wf.workflow("order")
    def order(ctx: Context, step: Step) -> None:
        reserved = step.run("reserve", executed.append, "reserve")
        if reserved != {"big": BIG, "float": 1.0}:
            return
        try:
            step.run("charge", executed.append, "charge")
        except StepError as error:
            if (error.name, error.message) == ("RuntimeError", "the bank is away"):
                step.run("note", executed.append, "note")
        step.sleep("cool-off", "2h")
        step.run("new", executed.append, "new")

    @wf.workflow("ship")
    def ship(ctx: Context, step: Step) -> None:
        step.run("pack", executed.append, "pack")
        step.wait_for_event("shipped", "order.shipped", timeout="1h")

    @wf.workflow("pay")
    def pay(ctx: Context, step: Step) -> None:
        step.run("bank", executed.append, "bank")


def changed(wf: Workflows, executed: list[str]) -> None:
    """A step is put before one that has its result; a step is another kind; a workflow is gone."""

    @wf.workflow("order")
    def order(ctx: Context, step: Step) -> None:
        step.run("reserve", executed.append, "reserve")
        step.run("insure", executed.append, "insure")
        step.run("note", executed.append, "note")

    @wf.workflow("ship")
    def ship(ctx: Context, step: Step) -> None:
        step.sleep("pack", "1h")


@asynccontextmanager
async def candidate(rest: Rest, register: Any, executed: list[str]) -> AsyncIterator[str]:
    """The URL of code that the project does not have."""
    wf = await registry(rest)
    register(wf, executed)
    server = Server(wf.handle_request, "127.0.0.1", 0)
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await asyncio.to_thread(server.stop, 1)
        wf.close()


async def check(rest: Rest, folder: Path, **options: Any) -> int:
    given: dict[str, Any] = {
        "project": rest.project,
        "url": None,
        "key": None,
        "against_active": True,
        "workflow": None,
        "most": 100,
        "as_json": True,
    }
    environ = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token, "RUNR_HOME": str(folder)}
    return await command.run(environ, **{**given, **options})


async def three_runs(rest: Rest) -> dict[str, str]:
    """A run that sleeps, one that waits, and one that is tried again."""
    runs = {name: await rest.start(name) for name in ("order", "ship", "pay")}
    await rest.becomes(runs["order"], "sleeping")
    await rest.becomes(runs["ship"], "waiting")
    await rest.becomes(runs["pay"], lambda run: run["steps"] and run["steps"][0]["status"] == "retrying")
    return runs


async def test_runs_that_would_diverge_are_named_before_the_deploy(
    rest: Rest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    executed: list[str] = []
    async with serving(rest, deployed):
        runs = await three_runs(rest)

        # The code of now, at the project's own endpoint.
        assert await check(rest, tmp_path) == 0
        said = json.loads(capsys.readouterr().out)
        assert {run["id"]: run["divergence"] for run in said["runs"]} == dict.fromkeys(runs.values())

        async with candidate(rest, unchanged_in_effect, executed) as url:
            assert await check(rest, tmp_path, url=url, as_json=False) == 0
            assert capsys.readouterr().out.splitlines() == [
                f"served    order, pay, ship at {url}",
                f"checked   3 active runs of {rest.project}, 0 would diverge",
            ]

        async with candidate(rest, changed, executed) as url:
            assert await check(rest, tmp_path, url=url) == 1
            said = json.loads(capsys.readouterr().out)
            found = {run["workflow"]: (run["divergence"]["kind"], run["divergence"]["step"]) for run in said["runs"]}
            assert found == {"order": ("skipped", "charge"), "ship": ("kind", "pack"), "pay": ("not_served", None)}

            assert await check(rest, tmp_path, url=url, workflow="order", as_json=False) == 1
            lines = capsys.readouterr().out.splitlines()
            assert lines[1:] == [
                f"DIVERGES  {runs['order']}  order, sleeping: step 'charge': it has a result, and the code comes to"
                " 'insure', a run, without calling it",
                f"checked   1 active run of {rest.project}, 1 would diverge",
            ]
        for run in runs.values():
            await rest.ok("POST", f"/runs/{run}/cancel", {})
    assert executed == []


async def test_a_check_that_is_not_whole_is_not_passed(
    rest: Rest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(rest, deployed):
        runs = [await rest.start("ship") for _ in range(3)]
        assert await check(rest, tmp_path, most=2) == 1
        said = json.loads(capsys.readouterr().out)
        assert (said["complete"], len(said["runs"])) == (False, 2)
        assert await check(rest, tmp_path, most=3) == 0
        for run in runs:
            await rest.ok("POST", f"/runs/{run}/cancel", {})


async def test_code_that_would_execute_steps_is_not_asked(rest: Rest, tmp_path: Path) -> None:
    shown = await rest.ok("GET", f"/projects/{rest.project}/workflows/app/signing-key")
    async with FakeFunction({"ship": lambda _: {"op": "run_completed"}}, key=shown["signing_key"]) as function:
        with pytest.raises(Failure, match="has not the capability dry: a dry request would execute steps"):
            await check(rest, tmp_path, url=function.url)
        assert [request.kind for request in function.requests] == ["introspect"]
        assert await check(rest, tmp_path, url=function.url, against_active=False) == 0
        with pytest.raises(Failure, match=r"SignatureRejected: .* \(it has another key, or another program"):
            await check(rest, tmp_path, url=function.url, key="wfsk_another_key", against_active=False)
    async with FakeFunction({"a b": lambda _: {}}, key=shown["signing_key"]) as function:
        with pytest.raises(Failure, match="a sync would refuse its definitions"):
            await check(rest, tmp_path, url=function.url, against_active=False)
    with pytest.raises(Failure, match="the project has no endpoint: say with --url where the code is"):
        await check(rest, tmp_path)
