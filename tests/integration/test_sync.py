"""Learning definitions from a function over a real connection, and the keys that sign for it."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from services.core.domain.caller import Caller
from services.core.domain.endpoint import EndpointPolicy
from services.core.domain.errors import Conflict, InvalidInput, NotFound
from services.core.domain.function_answer import Introspection, SdkInfo
from services.core.domain.op import FunctionFault
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.sync import Syncer, SyncStatus
from services.core.runtime.clock import SystemClock
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project
from services.core.store.workflows import workflows_of
from services.executor.function_client import HttpFunctionClient
from services.executor.project_function import Lookup, ProjectFunctions, system_lookup
from tests.support.fake_function import FakeFunction, Reply
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

PRIVATE = FunctionSettings(allow_private=True, connect_timeout_s=2.0)


@pytest.fixture
async def client() -> AsyncIterator[HttpFunctionClient]:
    async with HttpFunctionClient(
        policy=EndpointPolicy(allow_private=True), unix_seconds=lambda: int(time.time()), version="9.9"
    ) as client:
        yield client


@pytest.fixture
def functions(database: Database, sealer: Sealer, client: HttpFunctionClient) -> ProjectFunctions:
    return make(database, sealer, client)


def make(
    database: Database,
    sealer: Sealer,
    client: HttpFunctionClient,
    settings: FunctionSettings = PRIVATE,
    lookup: Lookup = system_lookup,
) -> ProjectFunctions:
    return ProjectFunctions(
        database=database,
        definitions=DefinitionsCache(sealer),
        sealer=sealer,
        client=client,
        settings=settings,
        clock=SystemClock(),
        defs_changed=lambda _: None,
        lookup=lookup,
    )


@pytest.fixture
def caller(tenant: int) -> Caller:
    return Caller(tenant=tenant, token_id="t1", abilities=frozenset())


async def key_of(functions: ProjectFunctions, caller: Caller) -> str:
    return (await functions.reveal_key(caller, "default")).current


async def project_of(database: Database, tenant: int) -> ProjectRow:
    async with database.connection() as connection:
        return await get_project(connection, tenant, "default")


async def status_of(database: Database, tenant: int) -> SyncStatus:
    text = (await project_of(database, tenant)).sync_status
    assert text is not None
    return SyncStatus.from_json(text)


async def declared(database: Database, tenant: int) -> list[str]:
    project = await project_of(database, tenant)
    async with database.connection() as connection:
        rows = await workflows_of(connection, tenant, project.id)
    return [row.name for row in rows if row.archived_ms is None]


def serving(key: str, *definitions: dict[str, Any]) -> FakeFunction:
    return FakeFunction(key=key, definitions=definitions)


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
        assert "workflows[1].retries" in status.message
        assert await declared(database, tenant) == ["kept"]
        # Setting the endpoint is not undone by a list that is refused.
        view = await functions.set_endpoint(caller, "default", function.url)
    assert view.project.endpoint_url == function.url
    assert view.project.sync_status is not None
    assert "failed" in view.project.sync_status


async def test_the_file_stands_in_for_a_function_that_is_not_there(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    async with serving(await key_of(functions, caller), {"name": "live"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
    failed = await functions.sync(tenant, "default")
    assert (await status_of(database, tenant)).state == "failed"
    assert [row.name for row in failed.workflows if row.archived_ms is None] == ["live"]
    file = b'{"workflows": [{"name": "filed", "novel": 1}], "made_by": "ci"}'
    await Declarer(database, lambda _: None).store_file(tenant, "default", file)
    await functions.sync(tenant, "default")
    status = await status_of(database, tenant)
    assert (status.state, len(status.warnings)) == ("fallback", 2)
    assert "FunctionUnreachable" in status.message
    assert await declared(database, tenant) == ["filed"]
    assert (await project_of(database, tenant)).defs_source == "file"


async def test_a_pause_survives_the_file(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    declarer = Declarer(database, lambda _: None)
    async with serving(await key_of(functions, caller), {"name": "a"}, {"name": "b"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        await declarer.set_active(tenant, "default", "a", False)
        await declarer.store_file(tenant, "default", b'[{"name": "a", "retries": 7}, {"name": "c"}]')
        served = await functions.sync(tenant, "default")
        assert [row.name for row in served.workflows if row.archived_ms is None] == ["a", "b"], "the function is there"
    filed = await functions.sync(tenant, "default")
    by_name = {record.name: record for record in filed.records()}
    assert (by_name["a"].is_active, json.loads(by_name["a"].definition)["retries"]) == (False, 7)
    assert (by_name["b"].archived_ms is None, by_name["c"].archived_ms is None) == (False, True)
    function.key = await key_of(functions, caller)
    async with function:  # on its port again
        served = await functions.sync(tenant, "default")
    by_name = {record.name: record for record in served.records()}
    assert (by_name["a"].is_active, by_name["a"].archived_ms, by_name["b"].archived_ms) == (False, None, None)
    assert by_name["c"].archived_ms is not None
    assert (await status_of(database, tenant)).state == "synced"


class Unreached:
    """A function that is asked in vain, while something else happens."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile

    async def ask(self) -> Introspection:
        await self._meanwhile()
        raise FunctionFault("FunctionUnreachable", "nobody listens")


@pytest.mark.parametrize("stored", [b'[{"name": "filed"}]', None])
async def test_who_reached_the_function_meanwhile_is_not_overruled_by_who_did_not(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int, stored: bytes | None
) -> None:
    declarer, syncer = Declarer(database, lambda _: None), Syncer(database, lambda _: None)
    if stored is not None:
        await declarer.store_file(tenant, "default", stored)
    async with serving(await key_of(functions, caller), {"name": "live"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        late = Unreached(lambda: functions.sync(tenant, "default"))
        answer = await syncer.sync(tenant, "default", late.ask)
    assert [row.name for row in answer.workflows] == ["live"]
    assert await declared(database, tenant) == ["live"]
    assert (await status_of(database, tenant)).state == "synced"


async def test_the_file_is_the_one_that_is_stored_when_it_is_taken(database: Database, tenant: int) -> None:
    declarer, syncer = Declarer(database, lambda _: None), Syncer(database, lambda _: None)
    await declarer.store_file(tenant, "default", b'[{"name": "old"}]')
    late = Unreached(lambda: declarer.store_file(tenant, "default", b'[{"name": "new"}]'))
    await syncer.sync(tenant, "default", late.ask)
    assert await declared(database, tenant) == ["new"]


async def test_a_file_that_holds_no_more_is_refused_with_every_fault(database: Database, tenant: int) -> None:
    await Declarer(database, lambda _: None).store_file(tenant, "default", b'[{"name": "a"}, {"name": "b"}]')
    narrow = Syncer(database, lambda _: None, most=1)
    with pytest.raises(InvalidInput, match="at most 1"):
        await narrow.sync(tenant, "default", Unreached(_nothing).ask)
    status = await status_of(database, tenant)
    assert (status.state, "refused" in status.message) == ("failed", True)
    async with database.connection() as connection:
        # As an older engine may have left it.
        await connection.execute(
            f"""update t_{tenant}.projects set defs_file = '[{{"name": ""}}, {{"retries": 99}}]'"""
        )
    with pytest.raises(InvalidInput) as refused:
        await Syncer(database, lambda _: None).sync(tenant, "default", Unreached(_nothing).ask)
    assert [error.path for error in refused.value.errors] == [
        "workflows[0].name",
        "workflows[1].name",
        "workflows[1].retries",
    ]
    assert await declared(database, tenant) == []


async def _nothing() -> None:
    pass


async def test_a_function_that_knows_another_key_is_there(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    await Declarer(database, lambda _: None).store_file(tenant, "default", b'[{"name": "filed"}]')
    async with serving("wfsk_another_key", {"name": "theirs"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        assert function.rejected == 1
    status = await status_of(database, tenant)
    assert status.state == "failed"
    assert "SignatureRejected" in status.message
    assert await declared(database, tenant) == []


@pytest.mark.parametrize(
    ("reply", "state", "word"),
    [
        (Reply(503, b"no"), "fallback", "FunctionHttpError"),
        (Reply(200, b"<html>"), "failed", "ProtocolError"),
        (Reply(200, b'{"runr_workflow": "v1"}'), "failed", "ProtocolError"),
        (Reply(200, b'{"runr_workflow": "v2", "workflows": []}'), "failed", "ProtocolError"),
    ],
)
async def test_only_an_absent_function_is_stood_in_for(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int, reply: Reply, state: str, word: str
) -> None:
    await Declarer(database, lambda _: None).store_file(tenant, "default", b"[]")
    async with FakeFunction(key=await key_of(functions, caller), introspect=lambda _: reply) as function:
        await functions.set_endpoint(caller, "default", function.url)
    status = await status_of(database, tenant)
    assert status.state == state
    assert word in status.message


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


async def test_the_key_before_signs_along_until_the_function_has_the_new_one(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    old = await key_of(functions, caller)
    async with serving(old, {"name": "ship"}) as function:
        await functions.set_endpoint(caller, "default", function.url)
        before = await functions.app(tenant, "default")
        rotated = await functions.rotate_key(caller, "default")
        assert rotated.project.key_print != before.project.key_print
        assert rotated.previous_fingerprint == before.project.key_print
        assert rotated.previous_until_ms is not None
        await functions.sync(tenant, "default")
        assert (await status_of(database, tenant)).state == "synced"
        keys = await functions.reveal_key(caller, "default")
        assert keys.previous == old
        function.key = keys.current
        await functions.sync(tenant, "default")
        assert (await status_of(database, tenant)).state == "synced"
        # A second rotation drops the first key: one key before the current one signs along, not all of history.
        await functions.rotate_key(caller, "default")
        function.key = old
        await functions.sync(tenant, "default")
    assert (await status_of(database, tenant)).state == "failed"


async def test_a_key_of_the_past_stops_signing_after_the_grace(
    database: Database, sealer: Sealer, client: HttpFunctionClient, caller: Caller, tenant: int
) -> None:
    functions = make(database, sealer, client, replace(PRIVATE, key_rotation_grace_ms=0))
    await functions.rotate_key(caller, "default")
    view = await functions.app(tenant, "default")
    assert (view.previous_fingerprint, view.previous_until_ms) == (None, None)
    assert (await functions.reveal_key(caller, "default")).previous is None


async def test_revealing_and_rotating_are_audited(
    functions: ProjectFunctions, database: Database, caller: Caller, tenant: int
) -> None:
    key = await key_of(functions, caller)
    await functions.rotate_key(caller, "default")
    async with database.connection() as connection:
        rows = await connection.fetch(
            "select tenant, actor, action, subject, a::text as row from rt.audit a order by id"
        )
    assert [(row["actor"], row["action"], row["subject"]) for row in rows] == [
        ("token:t1", "signing_key.reveal", "default"),
        ("token:t1", "signing_key.rotate", "default"),
    ]
    assert all(key not in row["row"] for row in rows)


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
