"""The file of definitions stands in for a function that is not there, and only for such a one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import InvalidInput
from services.core.domain.function_answer import Introspection
from services.core.domain.op import FunctionFault
from services.core.engine.declare import Declarer
from services.core.engine.sync import Syncer
from services.core.store.database import Database
from services.executor.project_function import ProjectFunctions
from tests.support.fake_function import FakeFunction, Reply
from tests.support.project_function import caller, client, declared, functions, key_of, project_of, serving, status_of
from tests.support.tenancy import database, sealer, tenant

__all__ = ["caller", "client", "database", "functions", "sealer", "tenant"]


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
    assert status.message.startswith("SignatureRejected: HTTP 401")
    assert status.message.endswith("(it has another key, or another program answers on this port)")
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
