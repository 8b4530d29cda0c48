"""Definitions come from the function; what it no longer serves is archived, and comes back when it does."""

from __future__ import annotations

import json
from pathlib import Path

from runr_workflows import Context, Step, Workflows

from tests.support.cli import Shell
from tests.support.rest import Json, Rest
from tests.support.transports import only_over
from tests.support.workflow_app import Bodies, serving


def shop(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("bill", triggers=[{"event": "shop.sold", "if": "event.data.total > 0"}], retries=5, timeout="2h")
    def bill(ctx: Context, step: Step) -> str:
        step.run("work", bodies.record, ctx.run_id, "work")
        return "billed"

    @wf.workflow("ship", description="Ships.")
    def ship(ctx: Context, step: Step) -> str:
        step.wait_for_event("packed", "shop.packed", timeout="1h")
        return "shipped"


def bill_only(wf: Workflows, bodies: Bodies) -> None:
    @wf.workflow("bill", retries=1)
    def bill(ctx: Context, step: Step) -> str:
        return "billed otherwise"


async def listed(rest: Rest, query: str = "") -> dict[str, Json]:
    """Name → workflow."""
    page = await rest.ok("GET", f"/projects/{rest.project}/workflows{query}")
    return {workflow["name"]: workflow for workflow in page["data"]}


SYNC = only_over("http", because="the engine asks the function for its list; a worker brings its own")


@SYNC
async def test_a_sync_learns_definitions(rest: Rest) -> None:
    async with serving(rest, shop):
        found = await listed(rest)
        app = await rest.ok("GET", f"/projects/{rest.project}/workflows/app")
    assert set(found) == {"bill", "ship"}
    bill = found["bill"]
    assert bill["triggers"] == [{"event": "shop.sold", "if": "event.data.total > 0"}]
    assert (bill["retries"], bill["is_active"], bill["archived_at"], bill["source"]) == (5, True, None, "sync")
    assert found["ship"]["description"] == "Ships."
    assert app["sync"]["status"] == "synced"
    assert app["sync"]["sdk"]["language"] == "python"
    assert app["endpoint_url"].startswith("http://127.0.0.1:")


async def test_what_is_not_served_any_more_is_archived_and_comes_back(rest: Rest) -> None:
    path = f"/projects/{rest.project}/workflows/ship"
    async with serving(rest, shop):
        run = await rest.start("ship")
        await rest.becomes(run, "waiting")
        await rest.ok("PATCH", path, {"is_active": False})
    async with serving(rest, bill_only):
        assert set(await listed(rest)) == {"bill"}
        assert (await listed(rest, "?archived=true"))["ship"]["archived_at"] is not None
        (await rest.call("POST", f"{path}/runs", {})).problem(409)
        assert await rest.completed(await rest.start("bill")) == "billed otherwise"
        assert (await rest.send("shop.sold", {"total": 1}))["runs"] == []
    async with serving(rest, shop):
        back = (await listed(rest))["ship"]
        assert (back["archived_at"], back["is_active"]) == (None, False)
        # The run that had started before all this goes on.
        await rest.send("shop.packed")
        assert await rest.completed(run) == "shipped"


async def test_a_list_can_be_declared_without_the_function(rest: Rest) -> None:
    path = f"/projects/{rest.project}/workflows"
    await rest.ok("PUT", path, {"workflows": [{"name": "ship"}, {"name": "bill", "idempotency": "event.data.id"}]})
    found = await listed(rest)
    assert {name: workflow["source"] for name, workflow in found.items()} == {"bill": "api", "ship": "api"}
    async with serving(rest, shop):
        await rest.ok("PUT", path, {"workflows": [{"name": "bill"}]})
        assert set(await listed(rest)) == {"bill"}
        assert await rest.completed(await rest.start("bill")) == "billed"


@SYNC
async def test_a_function_that_cannot_be_asked_changes_nothing(rest: Rest) -> None:
    async with serving(rest, shop):
        before = await listed(rest)
    synced = await rest.ok("POST", f"/projects/{rest.project}/workflows/sync", {})
    assert synced["sync"]["status"] == "failed"
    assert "FunctionUnreachable" in synced["sync"]["message"]
    assert await listed(rest) == before


@SYNC
async def test_the_stored_file_stands_in_while_the_function_is_away(rest: Rest) -> None:
    project = f"/projects/{rest.project}"
    async with serving(rest, shop):
        await rest.ok("PATCH", f"{project}/workflows/ship", {"is_active": False})
    stored = await rest.ok("PUT", f"{project}/definitions-file", [{"name": "ship"}, {"name": "filed", "shiny": 1}])
    assert (stored["workflows"], len(stored["warnings"])) == (2, 1)
    refused = await rest.call("PUT", f"{project}/definitions-file", [{"name": "a", "retries": -1}, {"name": ""}])
    assert set(refused.faults()) == {"workflows[0].retries", "workflows[1].name"}
    synced = await rest.ok("POST", f"{project}/workflows/sync", {})
    assert (synced["sync"]["status"], "FunctionUnreachable" in synced["sync"]["message"]) == ("fallback", True)
    found = await listed(rest)
    assert {(name, each["source"], each["is_active"]) for name, each in found.items()} == {
        ("ship", "file", False),
        ("filed", "file", True),
    }
    async with serving(rest, shop):  # which syncs
        found = await listed(rest)
    assert {(name, each["source"], each["is_active"]) for name, each in found.items()} == {
        ("ship", "sync", False),
        ("bill", "sync", True),
    }


@SYNC
async def test_the_command_line_stores_the_file_and_syncs(rest: Rest, tmp_path: Path) -> None:
    file = tmp_path / "runr.workflows.json"

    async def told(*arguments: str, **environ: str) -> tuple[int, str, str]:
        said = await Shell(rest, tmp_path, **environ).runr("workflows", "sync", "--project", rest.project, *arguments)
        return said.code, said.out, said.err

    code, out, err = await told("--file")
    assert (code, out, "runr.workflows.json: No such file" in err) == (2, "", True)
    file.write_text('[{"name": "ship", "retries": 99}, {"name": ""}]')
    code, out, err = await told("--file")
    assert (code, out) == (1, "")
    assert all(err.count(path) == 1 for path in ("422", "workflows[0].retries", "workflows[1].name"))
    nobody = "the project has no endpoint: set endpoint_url (PATCH /api/projects/…/workflows/app), or connect a worker"
    assert await told() == (1, f"failed    FunctionUnreachable: {nobody}\n", "")
    file.write_text('{"workflows": [{"name": "ship"}, {"name": "filed"}], "made_by": "ci"}')
    code, out, err = await told("--file", str(file))
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "stored    a file of 2 workflows"
    assert out.splitlines()[-2:] == ["          filed", "          ship"]
    assert "\nfallback  FunctionUnreachable" in out
    await rest.start("ship", delay="1h")
    file.write_text('[{"name": "filed"}]')
    code, out, err = await told("--file", str(file))
    assert out.splitlines()[-3:-1] == ["          filed", "archived  ship: it starts no new runs"]
    assert out.splitlines()[-1].startswith("warning   1 run of ship is active. They go on only where it is served")
    async with serving(rest, bill_only):
        code, out, err = await told("--json")
        answer = json.loads(out)
        assert (code, answer["sync"]["status"], answer["file"]) == (0, "synced", None)
        assert [each["name"] for each in answer["workflows"]] == ["bill"]
    assert (await told(RUNR_TOKEN=""))[0] == 2
    code, out, err = await told(RUNR_API_URL="", RUNR_TOKEN="")
    assert (code, "no stack of `runr dev`" in err) == (2, True)
    assert (await told(RUNR_TOKEN="wrong"))[0] == 1


async def test_a_rotated_key_signs_along_with_the_old_one(rest: Rest) -> None:
    async with serving(rest, shop):
        rotated = await rest.ok("POST", f"/projects/{rest.project}/workflows/app/rotate-key", {})
        assert rotated["previous_key_expires_at"] is not None
        # The function still knows only the old key.
        assert await rest.completed(await rest.start("bill")) == "billed"
