"""Projects, tokens, definitions and functions over gRPC: the real servicers behind a real server."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from runr.workflows.v1 import (
    access_service_pb2,
    access_service_pb2_grpc,
    function_service_pb2,
    function_service_pb2_grpc,
    workflow_service_pb2,
    workflow_service_pb2_grpc,
)

from services.core.domain.endpoint import EndpointPolicy
from services.core.domain.errors import (
    Conflict,
    DomainError,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unsupported,
)
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.declare import Declarer
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints, NullPublisher
from services.core.rpc.channel import call_metadata, open_channel
from services.core.rpc.server import RpcServer
from services.core.rpc.status import from_rpc_error
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from services.core.runtime.parse import Address
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings, TelemetrySettings
from services.core.runtime.telemetry import start_telemetry
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.executor.function_client import HttpFunctionClient
from services.executor.function_service import FunctionService
from services.executor.project_function import ProjectFunctions
from services.scheduler.access_service import AccessService
from services.scheduler.delete_project import ProjectDeleter
from services.scheduler.workflow_service import WorkflowService
from tests.support.fake_function import FakeFunction
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

ACCESS, WORKFLOWS, FUNCTIONS = access_service_pb2, workflow_service_pb2, function_service_pb2


class Api:
    """Calls methods by name with a token; errors come out as the domain's."""

    def __init__(self, channel: Any) -> None:
        self._stubs = (
            access_service_pb2_grpc.AccessServiceStub(channel),
            workflow_service_pb2_grpc.WorkflowServiceStub(channel),
            function_service_pb2_grpc.FunctionServiceStub(channel),
        )

    async def __call__(self, request: Any, *, token: str = BOOTSTRAP_TOKEN, tenant: str | None = None) -> Any:
        name = type(request).__name__.removesuffix("Request")
        method = next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))
        try:
            return await method(request, metadata=call_metadata(token, tenant=tenant), timeout=20)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None


@pytest.fixture
async def api(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Api]:
    clock = SystemClock()
    hints = Hints(NullPublisher())
    deleter = ProjectDeleter(database, hints, hints.defs_changed)
    async with HttpFunctionClient(
        policy=EndpointPolicy(allow_private=True), unix_seconds=lambda: int(time.time()), version="9.9"
    ) as client:
        functions = ProjectFunctions(
            database=database,
            definitions=DefinitionsCache(sealer),
            sealer=sealer,
            client=client,
            settings=FunctionSettings(allow_private=True),
            clock=clock,
            defs_changed=hints.defs_changed,
        )
        ids = UlidFactory(clock, random.Random(1))
        servicers = (
            AccessService(database, sealer, ids, deleter, hints.defs_changed),
            WorkflowService(database, Declarer(database, hints.defs_changed)),
            FunctionService(functions, lambda tenant, project: 3 if (tenant, project) == (1, 1) else 0),
        )
        server = RpcServer(
            Address("127.0.0.1", 0),
            [servicer.registration for servicer in servicers],
            authenticator=StoreAuthenticator(database, clock),
            telemetry=start_telemetry("test", TelemetrySettings()),
        )
        await server.start()
        channel = open_channel(server.address)
        yield Api(channel)
        await channel.close()
        await server.stop()


def declaration(project: str, text: str) -> Any:
    return WORKFLOWS.DeclareWorkflowsRequest(project=project, definitions=text.encode())


async def test_a_projects_life(api: Api) -> None:
    config = ACCESS.ProjectConfig(trigger_type=ACCESS.TRIGGER_TYPE_HTTP, queue_stream="in")
    made = (await api(ACCESS.CreateProjectRequest(slug="orders", config=config))).project
    assert (made.slug, made.name, made.config.trigger_type, made.config.queue_stream) == ("orders", "orders", 2, "in")
    assert made.created_at.seconds > 1_600_000_000
    changed = await api(ACCESS.UpdateProjectRequest(project="orders", config=ACCESS.ProjectConfig(queue_stream="")))
    assert changed.project.config.trigger_type == ACCESS.TRIGGER_TYPE_HTTP
    assert not changed.project.config.HasField("queue_stream")
    assert (await api(ACCESS.GetProjectRequest(project="orders"))).project == changed.project
    with pytest.raises(Conflict):
        await api(ACCESS.CreateProjectRequest(slug="orders"))
    await api(ACCESS.DeleteProjectRequest(project="orders"))
    with pytest.raises(NotFound):
        await api(ACCESS.GetProjectRequest(project="orders"))


async def test_the_event_trigger_is_refused(api: Api) -> None:
    config = ACCESS.ProjectConfig(trigger_type=ACCESS.TRIGGER_TYPE_EVENT)
    for request in (
        ACCESS.CreateProjectRequest(slug="orders", config=config),
        ACCESS.UpdateProjectRequest(project="default", config=config),
    ):
        with pytest.raises(InvalidInput) as refused:
            await api(request)
        assert [error.path for error in refused.value.errors] == ["config.trigger_type"]


async def test_lists_are_paged(api: Api) -> None:
    for slug in ("a", "b", "c"):
        await api(ACCESS.CreateProjectRequest(slug=slug))
    await api(declaration("default", '{"workflows": [{"name": "x"}, {"name": "y"}, {"name": "z"}]}'))
    for number in range(3):
        await api(ACCESS.CreateTokenRequest(name=f"t{number}"))
    for request, field, key, expected in (
        (ACCESS.ListProjectsRequest(page_size=3), "projects", "slug", ["a", "b", "c", "default"]),
        (WORKFLOWS.ListWorkflowsRequest(project="default", page_size=2), "workflows", "name", ["x", "y", "z"]),
        (ACCESS.ListTokensRequest(page_size=3), "tokens", "name", ["bootstrap", "t0", "t1", "t2"]),
    ):
        found: list[str] = []
        pages = 0
        while True:
            answer = await api(request)
            found += [getattr(item, key) for item in getattr(answer, field)]
            pages += 1
            if not answer.next_page_token:
                break
            request.page_token = answer.next_page_token
        assert (found, pages) == (expected, 2)


async def test_declaring_listing_and_pausing(api: Api) -> None:
    text = '{"workflows": [{"name": "ship", "triggers": [{"event": "order.created"}]}, {"name": "old"}]}'
    await api(declaration("default", text))
    declared = await api(declaration("default", '{"workflows": [{"name": "ship", "retries": 0}]}'))
    assert [(each.name, each.HasField("archived_at")) for each in declared.workflows] == [
        ("old", True),
        ("ship", False),
    ]
    listed = await api(WORKFLOWS.ListWorkflowsRequest(project="default"))
    assert [each.name for each in listed.workflows] == ["ship"]
    ship = (await api(WORKFLOWS.GetWorkflowRequest(project="default", workflow="ship"))).workflow
    assert ship == listed.workflows[0]
    assert (ship.source, ship.project, ship.is_active) == (WORKFLOWS.DEFINITION_SOURCE_API, "default", True)
    paused = await api(WORKFLOWS.UpdateWorkflowRequest(project="default", workflow="ship", is_active=False))
    assert not paused.workflow.is_active
    with pytest.raises(InvalidInput):
        await api(WORKFLOWS.UpdateWorkflowRequest(project="default", workflow="ship"))
    with pytest.raises(NotFound):
        await api(WORKFLOWS.GetWorkflowRequest(project="default", workflow="nothing"))


async def test_every_fault_of_a_declaration_arrives(api: Api) -> None:
    with pytest.raises(InvalidInput) as refused:
        await api(declaration("default", '{"workflows": [{"name": "a", "x": 1, "throttle": {}}], "y": 2}'))
    everything = ["y", "workflows[0].x", "workflows[0].throttle"]
    assert [error.path for error in refused.value.errors] == everything
    with pytest.raises(InvalidInput) as refused:
        await api(declaration("default", '{"workflows": [{"name": "a"}], "y": 2}'))
    assert [error.path for error in refused.value.errors] == ["y"]


async def test_the_definitions_file_is_stored_with_what_was_passed_over_in_it(api: Api, database: Database) -> None:
    def file(text: str, project: str = "default") -> Any:
        return WORKFLOWS.StoreDefinitionsFileRequest(project=project, definitions=text.encode())

    stored = await api(file('{"workflows": [{"name": "a", "x": 1}, {"name": "b"}], "made_by": "ci"}'))
    assert stored.workflows == 2
    assert [warning.partition(":")[0] for warning in stored.warnings] == ["made_by", "workflows[0].x"]
    with pytest.raises(InvalidInput) as refused:
        await api(file('[{"name": "a", "retries": -1}, {"name": "a", "throttle": {}}, 7]'))
    assert [error.path for error in refused.value.errors] == [
        "workflows[0].retries",
        "workflows[1].throttle",
        "workflows[1].name",
        "workflows[2]",
        "workflows[2].name",
    ]
    async with database.connection() as connection:
        assert "made_by" in await connection.fetchval("select defs_file from rt.projects")
    assert not (await api(WORKFLOWS.ListWorkflowsRequest(project="default"))).workflows, "a file declares nothing"
    await api(
        ACCESS.CreateProjectRequest(slug="plain", config=ACCESS.ProjectConfig(trigger_type=ACCESS.TRIGGER_TYPE_HTTP))
    )
    for project, kind in (("plain", Conflict), ("nowhere", NotFound)):
        with pytest.raises(kind):
            await api(file("[]", project))


async def test_tokens(api: Api, database: Database) -> None:
    made = await api(ACCESS.CreateTokenRequest(name="viewer", abilities=["workflows.view"]))
    who = await api(ACCESS.GetCallerRequest(), token=made.secret)
    assert (who.tenant, who.token_id, list(who.abilities)) == ("default", made.token.id, ["workflows.view"])
    with pytest.raises(PermissionDenied):
        await api(ACCESS.CreateProjectRequest(slug="x"), token=made.secret)
    with pytest.raises(PermissionDenied):
        await api(ACCESS.CreateTokenRequest(name="more"), token=made.secret)
    with pytest.raises(PermissionDenied):
        await api(ACCESS.GetCallerRequest(), tenant="other")
    with pytest.raises(Unauthenticated):
        await api(ACCESS.GetCallerRequest(), token="rt_unknown_token")
    await api(ACCESS.DeleteTokenRequest(token_id=made.token.id))
    for token_id in (made.token.id, "no-ulid", ""):
        with pytest.raises(NotFound):
            await api(ACCESS.DeleteTokenRequest(token_id=token_id))


async def test_another_tenants_things_do_not_exist(api: Api, database: Database) -> None:
    async with database.connection() as connection:
        other = await create_tenant(connection, "other", "Other")
        await connection.execute("update rt.token set tenant = $1 where name = 'bootstrap'", other)
    calls: list[Any] = [
        ACCESS.GetProjectRequest(project="default"),
        ACCESS.DeleteProjectRequest(project="default"),
        declaration("default", '{"workflows": []}'),
        WORKFLOWS.ListWorkflowsRequest(project="default"),
        FUNCTIONS.GetAppRequest(project="default"),
        FUNCTIONS.RevealSigningKeyRequest(project="default"),
        FUNCTIONS.SyncWorkflowsRequest(project="default"),
    ]
    for call in calls:
        with pytest.raises(NotFound):
            await api(call)


async def test_a_function_from_its_endpoint_to_its_definitions(api: Api) -> None:
    key = (await api(FUNCTIONS.RevealSigningKeyRequest(project="default"))).signing_key
    async with FakeFunction(key=key, definitions=[{"name": "ship", "new": 1}]) as function:
        app = (await api(FUNCTIONS.UpdateAppRequest(project="default", endpoint_url=function.url))).app
        assert (app.endpoint_url, app.effective_url, app.workers) == (function.url, function.url, 3)
        assert app.sync.state == FUNCTIONS.SYNC_STATE_SYNCED
        assert [warning.partition(":")[0] for warning in app.sync.warnings] == ["workflows[0].new"]
        assert app.sync.sdk == b'{"name": "fake", "language": "python", "version": "0"}'
        synced = await api(FUNCTIONS.SyncWorkflowsRequest(project="default"))
        assert [each.name for each in synced.workflows] == ["ship"]
        assert synced.workflows[0].source == WORKFLOWS.DEFINITION_SOURCE_SYNC
        assert [each.kind for each in function.requests] == ["introspect", "introspect"]
        rotated = (await api(FUNCTIONS.RotateSigningKeyRequest(project="default"))).app
        assert rotated.previous_key_fingerprint == app.key_fingerprint
        assert rotated.previous_key_expires_at.seconds > time.time() + 86_000
        assert (await api(FUNCTIONS.GetAppRequest(project="default"))).app == rotated
        revealed = await api(FUNCTIONS.RevealSigningKeyRequest(project="default"))
        assert (revealed.previous_signing_key, revealed.key_fingerprint) == (key, rotated.key_fingerprint)
    assert key not in str(rotated)
    removed = (await api(FUNCTIONS.UpdateAppRequest(project="default", endpoint_url=""))).app
    assert (removed.HasField("endpoint_url"), removed.effective_url) == (False, "")
    with pytest.raises(InvalidInput):
        await api(FUNCTIONS.UpdateAppRequest(project="default"))


async def test_methods_of_later_versions_say_so(api: Api) -> None:
    with pytest.raises(DomainError) as refused:
        await api(ACCESS.DeleteTenantRequest(tenant="default"))
    assert isinstance(refused.value, Unsupported)
