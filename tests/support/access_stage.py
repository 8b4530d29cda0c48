"""Access as it is served: the real AccessService over a real Postgres, behind a real gateway."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from runr.workflows.v1 import access_service_pb2_grpc

from services.core.domain.caller import Caller
from services.core.domain.role import ROLES
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.hints import Hints, NullPublisher
from services.core.engine.passwords import Cost, Passwords
from services.core.engine.tokens import create_token
from services.core.engine.users import create_user
from services.core.rpc.channel import call_metadata, open_channel
from services.core.rpc.server import RpcServer
from services.core.rpc.status import from_rpc_error
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import SessionSettings
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.members import insert_member
from services.scheduler.access_service import AccessService
from services.scheduler.delete_project import ProjectDeleter
from tests.support.grpc_backend import LOOPBACK, no_telemetry
from tests.support.http_gateway import Client, gateway

PASSWORD = "correct horse battery"
CHEAP = Passwords(Cost(passes=1, memory_kib=64))


@dataclass(frozen=True)
class Stage:
    """A gateway (`http`) and the service behind it (`ask`), whose tenants and users a test makes itself."""

    http: Client
    database: Database
    ids: UlidFactory
    stub: Any

    async def ask(self, request: Any, *, token: str, tenant: str | None = None) -> Any:
        """Call the method of a request over gRPC; its errors come out as the domain's."""
        method = getattr(self.stub, type(request).__name__.removesuffix("Request"))
        try:
            return await method(request, metadata=call_metadata(token, tenant=tenant), timeout=30)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None

    async def tenant(self, slug: str) -> int:
        """A new tenant."""
        async with self.database.transaction() as connection:
            return await create_tenant(connection, slug, slug)

    async def user(self, email: str, password: str | None = PASSWORD) -> str:
        """The id of a new user, as text."""
        async with self.database.transaction() as connection:
            user = await create_user(connection, self.ids, CHEAP, email=email, password=password, actor="test")
        return ulid_text(user.id)

    async def join(self, tenant: int, user: str, role: str) -> str:
        """Make a user a member; the id of the membership, as text."""
        async with self.database.transaction() as connection:
            member = await insert_member(connection, id=self.ids.new(), tenant=tenant, user=ulid_uuid(user), role=role)
        assert member is not None
        return ulid_text(member.id)

    async def token(self, tenant: int, user: str, role: str, *abilities: str) -> str:
        """A token of a member, as the member would make it."""
        caller = Caller(tenant, "x" * 26, frozenset(ROLES[role]), role, user)
        async with self.database.transaction() as connection:
            made = await create_token(connection, caller, self.ids, name="test", abilities=abilities, expires_ms=None)
        return made.secret

    async def member(self, tenant: int, email: str, role: str) -> str:
        """A token of a new user who is this in the tenant."""
        user = await self.user(email)
        await self.join(tenant, user, role)
        return await self.token(tenant, user, role)

    async def audit(self, tenant: int) -> list[tuple[str, str]]:
        """Action and subject of each line of a tenant's log, oldest first."""
        async with self.database.connection() as connection:
            rows = await connection.fetch("select action, subject from rt.audit where tenant = $1 order by id", tenant)
        return [(row["action"], row["subject"]) for row in rows]


@asynccontextmanager
async def access_stage(
    database: Database, sealer: Sealer, *, settings: SessionSettings | None = None
) -> AsyncIterator[Stage]:
    """The stage over a database. What was told of a token is asked again with every call."""
    clock = SystemClock()
    ids = UlidFactory(clock, random.Random())
    hints = Hints(NullPublisher())
    deleter = ProjectDeleter(database, hints, hints.defs_changed)
    access = AccessService(database, sealer, ids, deleter, hints.defs_changed, settings=settings, passwords=CHEAP)
    server = RpcServer(
        LOOPBACK,
        [access.registration],
        authenticator=StoreAuthenticator(database, clock, ttl_s=0.0),
        telemetry=no_telemetry(),
    )
    async with gateway({}, server=server) as client:
        channel = open_channel(server.address)
        try:
            yield Stage(client, database, ids, access_service_pb2_grpc.AccessServiceStub(channel))
        finally:
            await channel.close()
