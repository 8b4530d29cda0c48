"""The gRPC face of projects and tokens, and with its other parts of all of access: translates, and calls what does the
work.
"""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from runr.workflows.v1 import access_service_pb2 as pb
from runr.workflows.v1 import access_service_pb2_grpc

from services.core.domain.errors import InvalidInput, Unauthenticated
from services.core.engine.declare import DefsChanged
from services.core.engine.passwords import Passwords
from services.core.engine.projects import ProjectChange, create_project, update_project
from services.core.engine.sessions import Sessions
from services.core.engine.tokens import create_token, delete_token
from services.core.rpc import paging
from services.core.rpc.call_context import caller
from services.core.rpc.convert import number, timestamp, unix_ms, word
from services.core.rpc.id_paging import page_of
from services.core.rpc.server import Registration
from services.core.runtime.ids import UlidFactory, ulid_text
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import SessionSettings
from services.core.store.access import TokenRow, get_tenant, list_tokens
from services.core.store.audit import INSTALLATION
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, list_projects
from services.scheduler.delete_project import ProjectDeleter
from services.scheduler.member_service import MemberMethods
from services.scheduler.session_service import SessionMethods


class AccessService(MemberMethods, SessionMethods, access_service_pb2_grpc.AccessServiceServicer):
    """See `proto/runr/workflows/v1/access_service.proto`. Deleting a tenant is not served yet."""

    def __init__(
        self,
        database: Database,
        sealer: Sealer,
        ids: UlidFactory,
        deleter: ProjectDeleter,
        defs_changed: DefsChanged,
        *,
        settings: SessionSettings | None = None,
        passwords: Passwords | None = None,
    ) -> None:
        MemberMethods.__init__(self, database, ids)
        sessions = Sessions(database, sealer, ids, passwords or Passwords(), settings or SessionSettings())
        SessionMethods.__init__(self, database, sessions)
        self._database = database
        self._sealer = sealer
        self._ids = ids
        self._deleter = deleter
        self._defs_changed = defs_changed

    @property
    def registration(self) -> Registration:
        """How a server takes it in."""
        return access_service_pb2_grpc.add_AccessServiceServicer_to_server, self

    async def ListProjects(self, request: pb.ListProjectsRequest, context: Any) -> pb.ListProjectsResponse:
        """A page of projects by slug."""
        size = paging.page_size(request.page_size)
        position = paging.position_of(request, str)
        async with self._database.connection() as connection:
            after = str(position[0]) if position else None
            rows = await list_projects(connection, caller().tenant, after=after, limit=size + 1)
        page = rows[:size]
        return pb.ListProjectsResponse(
            projects=map(_project, page),
            next_page_token=paging.next_token(request, [page[-1].slug]) if len(rows) > size else "",
        )

    async def CreateProject(self, request: pb.CreateProjectRequest, context: Any) -> pb.CreateProjectResponse:
        """Makes a project."""
        tenant = caller().tenant
        change = _change(request, request.name)
        async with self._database.transaction() as connection:
            project = await create_project(connection, self._sealer, tenant, request.slug, change)
        self._defs_changed(tenant)
        return pb.CreateProjectResponse(project=_project(project))

    async def GetProject(self, request: pb.GetProjectRequest, context: Any) -> pb.GetProjectResponse:
        """One project."""
        async with self._database.connection() as connection:
            project = await get_project(connection, caller().tenant, request.project)
        return pb.GetProjectResponse(project=_project(project))

    async def UpdateProject(self, request: pb.UpdateProjectRequest, context: Any) -> pb.UpdateProjectResponse:
        """Changes a project."""
        tenant = caller().tenant
        change = _change(request, request.name if request.HasField("name") else None)
        async with self._database.transaction() as connection:
            project = await update_project(connection, self._sealer, tenant, request.project, change)
        self._defs_changed(tenant)
        return pb.UpdateProjectResponse(project=_project(project))

    async def DeleteProject(self, request: pb.DeleteProjectRequest, context: Any) -> pb.DeleteProjectResponse:
        """Deletes a project with everything in it."""
        await self._deleter.delete(caller(), request.project)
        return pb.DeleteProjectResponse()

    async def GetCaller(self, request: pb.GetCallerRequest, context: Any) -> pb.GetCallerResponse:
        """Who calls."""
        who = caller()
        async with self._database.connection() as connection:
            tenant = await get_tenant(connection, who.tenant)
        if tenant is None and who.tenant != INSTALLATION:
            raise Unauthenticated("the token's tenant is gone")
        return pb.GetCallerResponse(
            tenant="" if tenant is None else tenant.slug,
            token_id=who.token_id,
            abilities=sorted(who.abilities),
            email=who.email,
            role=who.role,
            session=who.signed_in,
        )

    async def CreateToken(self, request: pb.CreateTokenRequest, context: Any) -> pb.CreateTokenResponse:
        """Makes a token; its secret is in this answer only."""
        expires_ms = unix_ms(request, "expires_at")
        async with self._database.transaction() as connection:
            made = await create_token(
                connection,
                caller(),
                self._ids,
                name=request.name,
                abilities=list(request.abilities),
                expires_ms=expires_ms,
            )
        return pb.CreateTokenResponse(token=_token(made.row), secret=made.secret)

    async def ListTokens(self, request: pb.ListTokensRequest, context: Any) -> pb.ListTokensResponse:
        """A page of tokens, oldest first."""

        async def read(after: UUID | None, limit: int) -> list[TokenRow]:
            async with self._database.connection() as connection:
                return await list_tokens(connection, caller().tenant, after=after, limit=limit)

        page, token = await page_of(request, read)
        return pb.ListTokensResponse(tokens=map(_token, page), next_page_token=token)

    async def DeleteToken(self, request: pb.DeleteTokenRequest, context: Any) -> pb.DeleteTokenResponse:
        """Takes a token back."""
        async with self._database.transaction() as connection:
            await delete_token(connection, caller(), request.token_id)
        return pb.DeleteTokenResponse()


def _change(request: pb.CreateProjectRequest | pb.UpdateProjectRequest, name: str | None) -> ProjectChange:
    """What a request wants of a project; what it leaves out stays as it is, or is the default of a new one."""
    if not request.HasField("config"):
        return ProjectChange(name=name)
    config = request.config
    trigger_type = word(pb.TriggerType, config.trigger_type) or None
    if trigger_type is None and config.trigger_type != pb.TRIGGER_TYPE_UNSPECIFIED:
        raise InvalidInput.of("config.trigger_type", f"{config.trigger_type} is not a trigger type")
    stream = config.queue_stream if config.HasField("queue_stream") else None
    return ProjectChange(name=name, trigger_type=trigger_type, queue_stream=stream)


def _project(row: ProjectRow) -> pb.Project:
    trigger_type = cast(pb.TriggerType, number(pb.TriggerType, row.trigger_type))
    return pb.Project(
        id=str(row.id),
        slug=row.slug,
        name=row.name,
        config=pb.ProjectConfig(trigger_type=trigger_type, queue_stream=row.queue_stream),
        created_at=timestamp(row.created_ms),
    )


def _token(row: TokenRow) -> pb.Token:
    return pb.Token(
        id=ulid_text(row.id),
        name=row.name,
        abilities=row.abilities,
        created_at=timestamp(row.created_ms),
        expires_at=timestamp(row.expires_ms),
        last_used_at=timestamp(row.used_ms),
        email=row.email,
    )
