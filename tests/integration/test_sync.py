"""Learning definitions from a function over a real connection."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import Conflict, InvalidInput, NotFound
from services.core.domain.function_answer import Introspection, SdkInfo
from services.core.engine.declare import Declarer
from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.sync import Syncer
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings
from services.core.store.database import Database
from services.executor.function_client import HttpFunctionClient
from services.executor.project_function import ProjectFunctions
from tests.support.fake_function import FakeFunction, Reply
from tests.support.project_function import (
    PRIVATE,
    caller,
    client,
    declared,
    functions,
    key_of,
    make,
    project_of,
    serving,
    status_of,
)
from tests.support.tenancy import database, sealer, tenant

__all__ = ["caller", "client", "database", "functions", "sealer", "tenant"]


@pytest.mark.parametrize(
    ("capabilities", "warnings"),
    [
        ([], ("workflows[1].checkpoint: has no effect: the SDK of the function does not list the capability max_ops",)),
        (["dry", "max_ops"], ()),
    ],
)
async def test_a_checkpoint_that_the_function_does_not_know_is_a_warning(
    functions: ProjectFunctions,
    database: Database,
    caller: Caller,
    tenant: int,
    capabilities: list[str],
    warnings: tuple[str, ...],
) -> None:
    listed = [{"name": "ship"}, {"name": "bill", "checkpoint": {"max_steps": 5}}]
    answer = json.dumps({"runr_workflow": "v1", "workflows": listed, "capabilities": capabilities}).encode()
    async with FakeFunction(key=await key_of(functions, caller), introspect=lambda _: Reply(body=answer)) as function:
        await functions.set_endpoint(caller, "default", function.url)
    status = await status_of(database, tenant)
    assert (status.state, status.warnings) == ("synced", warnings)
    assert await declared(database, tenant) == ["bill", "ship"]


@pytest.mark.parametrize("before", ["nothing", "a failed sync of an endpoint that it had", "a stored file"])
async def test_a_project_that_workers_alone_serve_has_nothing_to_sync(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int, before: str
) -> None:
    brought = Introspection(sdk=SdkInfo(name="fake"), workflows=[{"name": "quote"}], capabilities=frozenset())
    await Syncer(database, lambda _: None).accept(tenant, "default", brought, code_version=3)
    if before == "a failed sync of an endpoint that it had":
        await functions.set_endpoint(caller, "default", "http://127.0.0.1:1")
        assert (await status_of(database, tenant)).state == "failed"
        await functions.set_endpoint(caller, "default", None)
    elif before == "a stored file":
        await Declarer(database, lambda _: None).store_file(tenant, "default", b'[{"name": "filed"}]')
    synced = await functions.sync(tenant, "default")
    assert [(each.name, each.source) for each in synced.records()] == [("quote", "worker")]
    status = await status_of(database, tenant)
    assert (status.state, status.message) == ("synced", "")
    if before != "a failed sync of an endpoint that it had":
        assert status.code_version == 3


async def test_setting_an_endpoint_syncs(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    async with serving(await key_of(functions, caller), {"name": "ship"}, {"name": "bill"}) as function:
        view = await functions.set_endpoint(caller, "default", function.url)
        assert [each.kind for each in function.requests] == ["introspect"]
    assert view.effective_url == function.url
    assert await declared(database, tenant) == ["bill", "ship"]
    assert (await project_of(database, tenant)).defs_source == "sync"
    status = await status_of(database, tenant)
    assert (status.state, status.warnings) == ("synced", ())
    assert status.sdk == {"name": "fake", "language": "python", "version": "0"}
    assert view.project.synced_ms is not None


async def test_a_sync_replaces_and_keeps_pauses(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    async with serving(await key_of(functions, caller), {"name": "a"}, {"name": "b"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        await Declarer(database, lambda _: None).set_active(tenant, "default", "a", False)
        function.definitions = [{"name": "a", "retries": 7}]
        synced = await functions.sync(tenant, "default", "00-" + "1" * 32 + "-" + "2" * 16 + "-01")
        assert function.requests[-1].headers["traceparent"].startswith("00-1111")
    by_name = {record.name: record for record in synced.records()}
    assert (by_name["a"].is_active, by_name["a"].archived_ms) == (False, None)
    assert json.loads(by_name["a"].definition)["retries"] == 7
    assert by_name["b"].archived_ms is not None


async def test_unknown_fields_are_warnings(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    definition = {"name": "ship", "shiny": True, "triggers": [{"event": "e", "glitter": 1}]}
    async with serving(await key_of(functions, caller), definition) as function:
        await functions.set_endpoint(caller, "default", function.url)
    status = await status_of(database, tenant)
    assert status.state == "synced"
    assert {warning.split(":")[0] for warning in status.warnings} == {
        "workflows[0].shiny",
        "workflows[0].triggers[0].glitter",
    }
    assert await declared(database, tenant) == ["ship"]


async def test_a_refused_list_changes_nothing_but_the_status(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    async with serving(await key_of(functions, caller), {"name": "kept"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        function.definitions = [{"name": "ok"}, {"name": "bad", "retries": -1}, {"name": "soon", "priority": 1}]
        with pytest.raises(InvalidInput) as refused:
            await functions.sync(tenant, "default")
        assert [error.path for error in refused.value.errors] == ["workflows[1].retries", "workflows[2].priority"]
        status = await status_of(database, tenant)
        assert status.state == "failed"
        every = "; ".join(f"{error.path}: {error.message}" for error in refused.value.errors)
        assert status.message == f"the list is refused: {every}"
        assert await declared(database, tenant) == ["kept"]
        # Setting the endpoint is not undone by a list that is refused.
        view = await functions.set_endpoint(caller, "default", function.url)
    assert view.project.endpoint_url == function.url
    assert view.project.sync_status is not None
    assert "failed" in view.project.sync_status
    # What was said of an endpoint goes with it.
    removed = await functions.set_endpoint(caller, "default", None)
    assert (removed.project.sync_status, removed.project.synced_ms) == (None, None)


async def test_of_very_many_faults_it_is_said_how_many_are_not_told(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    faulty = [{"name": f"bad-{number}", "retries": -1} for number in range(500)]
    async with serving(await key_of(functions, caller), *faulty) as function:
        view = await functions.set_endpoint(caller, "default", function.url)
    status = await status_of(database, tenant)
    assert view.project.sync_status is not None
    assert len(status.message.encode()) <= 2048
    *told, left = status.message.split("; ")
    assert [text.split(": ")[-2] for text in told] == [f"workflows[{number}].retries" for number in range(len(told))]
    assert left == f"and {500 - len(told)} more"
    assert len(told) > 10


async def test_a_project_without_an_endpoint(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    await functions.sync(tenant, "default")
    status = await status_of(database, tenant)
    assert status.state == "failed"
    assert "endpoint_url" in status.message
    assert (await functions.app(tenant, "default")).effective_url is None


async def test_the_function_domain_and_the_override(
    database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int
) -> None:
    settings = replace(PRIVATE, domain="127.0.0.1:9", endpoint_path="/workflows")
    functions = make(database, sealer, client, settings)
    assert (await functions.app(tenant, "default")).effective_url == "https://default.127.0.0.1:9/workflows"
    await functions.set_endpoint(caller, "default", "http://127.0.0.1:9/mine")
    assert (await functions.app(tenant, "default")).effective_url == "http://127.0.0.1:9/mine"
    removed = await functions.set_endpoint(caller, "default", None)
    assert removed.effective_url == "https://default.127.0.0.1:9/workflows"


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "http://127.0.0.1/f", "http://localhost/f", "http://10.1.2.3/", "http://u:p@a.com/"]
)
async def test_endpoints_that_are_refused(
    database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int, url: str
) -> None:
    functions = make(database, sealer, client, FunctionSettings())
    with pytest.raises(InvalidInput) as refused:
        await functions.set_endpoint(caller, "default", url)
    assert [error.path for error in refused.value.errors] == ["endpoint_url"]
    assert (await project_of(database, tenant)).endpoint_url is None


async def test_a_name_with_a_private_address_is_refused(
    database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int
) -> None:
    async def lookup(host: str) -> list[str]:
        return ["93.184.216.34", "10.0.0.8"]

    functions = make(database, sealer, client, FunctionSettings(), lookup)
    with pytest.raises(InvalidInput, match=r"10\.0\.0\.8"):
        await functions.set_endpoint(caller, "default", "https://inside.example.com/")
    assert (await project_of(database, tenant)).endpoint_url is None


async def test_projects_that_have_no_function(
    functions: ProjectFunctions, database: Database, sealer: Sealer, caller: Caller, tenant: int
) -> None:
    async with database.transaction() as connection:
        await create_project(connection, sealer, tenant, "plain", ProjectChange(trigger_type="http"))
    for slug, kind in (("plain", Conflict), ("nowhere", NotFound)):
        for call in (
            functions.app(tenant, slug),
            functions.sync(tenant, slug),
            functions.rotate_key(caller, slug),
            functions.reveal_key(caller, slug),
            functions.set_endpoint(caller, slug, "http://127.0.0.1:9/"),
        ):
            with pytest.raises(kind):
                await call
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from rt.audit") == 0
