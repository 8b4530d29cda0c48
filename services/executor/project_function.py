"""The function of a project: where it is, which key signs for it, what it serves (engine sections 3 and 10)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from services.core.domain.caller import Caller
from services.core.domain.endpoint import EndpointPolicy, check_address, check_url
from services.core.domain.errors import Conflict, InvalidInput
from services.core.domain.function_answer import Introspection
from services.core.domain.op import FunctionFault
from services.core.domain.queue_message import nats_stream
from services.core.domain.queue_token import queue_token, sink_url
from services.core.domain.workflow import MAX_WORKFLOWS
from services.core.domain.workflow_record import ArchivedRecord
from services.core.engine.declare import Declared, DefsChanged
from services.core.engine.definitions import DefinitionsCache, ProjectEntry
from services.core.engine.projects import require_workflow_trigger
from services.core.engine.signing_keys import OpenKeys, fingerprint, new_key, open_keys
from services.core.engine.sync import NoEndpoint, Syncer
from services.core.engine.tokens import actor_of
from services.core.runtime.clock import Clock
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import FunctionSettings
from services.core.runtime.traceparent import headers as trace_headers
from services.core.store.access import TenantRow, get_tenant, write_audit
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project, lock_project, set_endpoint, set_key
from services.core.store.workflows import bump_definitions
from services.executor.endpoint import endpoint_of
from services.executor.function_client import FunctionClient, Target
from services.executor.introspect import introspect

_INTROSPECT_S = 15.0
_LOOKUP_S = 5.0

Lookup = Callable[[str], Awaitable[list[str]]]
"""All addresses of a host name. Raises OSError where there are none."""


@dataclass(frozen=True, slots=True)
class AppView:
    """What people see of a function: never a key, only fingerprints. `previous_until_ms` is unix milliseconds.

    `queue_bridge_url` lets whoever knows it deliver messages: it is for those who may manage the project. `archived`:
    workflows that the sync with an endpoint which was just set has archived.
    """

    project: ProjectRow
    effective_url: str | None
    previous_fingerprint: str | None
    previous_until_ms: int | None
    queue_bridge_url: str | None
    archived: tuple[ArchivedRecord, ...] = ()


async def system_lookup(host: str) -> list[str]:
    """The machine's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


class ProjectFunctions:
    """The functions of all projects. Everything is of the caller's tenant: any other project is NotFound."""

    def __init__(
        self,
        *,
        database: Database,
        definitions: DefinitionsCache,
        sealer: Sealer,
        client: FunctionClient,
        settings: FunctionSettings,
        clock: Clock,
        defs_changed: DefsChanged,
        lookup: Lookup = system_lookup,
        public_url: str = "",
        max_workflows: int = MAX_WORKFLOWS,
    ) -> None:
        """`public_url` is that of the API as seen from outside."""
        self._database = database
        self._definitions = definitions
        self._sealer = sealer
        self._client = client
        self._settings = settings
        self._policy = EndpointPolicy(settings.allow_private, settings.allowed_networks)
        self._clock = clock
        self._defs_changed = defs_changed
        self._lookup = lookup
        self._public_url = public_url
        self._syncer = Syncer(database, defs_changed, max_workflows)

    async def sync(self, tenant: int, slug: str, traceparent: str | None = None) -> Declared:
        """See `Syncer.sync`."""
        return await self._syncer.sync(tenant, slug, lambda: self._ask(tenant, slug, traceparent))

    async def app(self, tenant: int, slug: str) -> AppView:
        """How the project's function is reached. Raises NotFound, Conflict for a project that serves no workflows."""
        async with self._database.connection() as connection:
            project = await get_project(connection, tenant, slug)
            owner = await get_tenant(connection, tenant)
        require_workflow_trigger(project)
        return self._view(project, owner)

    async def set_endpoint(self, caller: Caller, slug: str, url: str | None, traceparent: str | None = None) -> AppView:
        """Set the endpoint override, None removes it, and sync with what is there now.

        How the sync went is in the view: a function that does not answer yet may be told of beforehand. Raises
        InvalidInput for a URL that is not allowed, NotFound, Conflict.
        """
        if url is not None:
            await self._check_endpoint(url)
        async with self._database.transaction() as connection:
            project = await lock_project(connection, caller.tenant, slug)
            require_workflow_trigger(project)
            await set_endpoint(connection, caller.tenant, project.id, url)
            await bump_definitions(connection, caller.tenant)
            await write_audit(
                connection, tenant=caller.tenant, actor=actor_of(caller), action="endpoint.set", subject=slug
            )
        self._defs_changed(caller.tenant)
        view = await self.app(caller.tenant, slug)
        if view.effective_url is None:
            return view
        # The endpoint is set whatever the list is worth; the sync status says why it was refused.
        archived: tuple[ArchivedRecord, ...] = ()
        with suppress(InvalidInput):
            archived = (await self.sync(caller.tenant, slug, traceparent)).archived
        return replace(await self.app(caller.tenant, slug), archived=archived)

    async def rotate_key(self, caller: Caller, slug: str) -> AppView:
        """Make a new signing key; the one before signs along for the rotation grace. Audited."""
        async with self._database.transaction() as connection:
            project = await lock_project(connection, caller.tenant, slug)
            require_workflow_trigger(project)
            key = new_key(self._sealer, caller.tenant, project.id)
            await set_key(connection, caller.tenant, project.id, key.sealed, key.fingerprint, rotate=True)
            await bump_definitions(connection, caller.tenant)
            await write_audit(
                connection, tenant=caller.tenant, actor=actor_of(caller), action="signing_key.rotate", subject=slug
            )
            rotated = await get_project(connection, caller.tenant, slug)
            owner = await get_tenant(connection, caller.tenant)
        self._defs_changed(caller.tenant)
        return self._view(rotated, owner)

    async def reveal_key(self, caller: Caller, slug: str) -> OpenKeys:
        """The keys in the clear; the audit row is written before anybody sees them. Raises NotFound, Conflict."""
        async with self._database.transaction() as connection:
            project = await get_project(connection, caller.tenant, slug)
            require_workflow_trigger(project)
            await write_audit(
                connection, tenant=caller.tenant, actor=actor_of(caller), action="signing_key.reveal", subject=slug
            )
        keys = open_keys(self._sealer, project, self._settings.key_rotation_grace_ms)
        if keys is None:
            raise Conflict(f"project {slug} has no signing key: rotate to make one", reason="NO_SIGNING_KEY")
        return keys

    async def _ask(self, tenant: int, slug: str, traceparent: str | None) -> Introspection:
        async with self._database.connection() as connection:
            known = await self._definitions.get(connection, tenant)
        entry = known.project_by_slug.get(slug)
        url = None if entry is None else endpoint_of(entry, self._settings)
        if entry is None or url is None:
            raise NoEndpoint
        if not entry.keys:
            raise FunctionFault("SignatureRejected", "the project has no signing key that opens: rotate it")
        return await introspect(
            self._client,
            Target(url, entry.keys, self._settings.verify_tls),
            unix_s=self._clock.unix_ms() // 1_000,
            timeout_s=min(_INTROSPECT_S, self._settings.request_timeout_s),
            headers=trace_headers(traceparent),
        )

    async def _check_endpoint(self, url: str) -> None:
        """Raises InvalidInput. A name that has no address yet passes: it is judged again at every connect."""
        parsed = check_url(url, self._policy)
        if parsed.address is not None or self._policy.allow_private:
            return
        try:
            async with asyncio.timeout(_LOOKUP_S):
                addresses = await self._lookup(parsed.host)
        except (OSError, UnicodeError):
            return
        for address in addresses:
            try:
                check_address(address, self._policy)
            except InvalidInput as error:
                raise InvalidInput.of("endpoint_url", error.message, reason=error.reason) from None

    def _view(self, project: ProjectRow, owner: TenantRow | None) -> AppView:
        keys = open_keys(self._sealer, project, self._settings.key_rotation_grace_ms)
        previous = keys.previous if keys is not None else None
        return AppView(
            project=project,
            effective_url=endpoint_of(_entry(project), self._settings),
            previous_fingerprint=None if previous is None else fingerprint(previous),
            previous_until_ms=None if keys is None else keys.previous_until_ms,
            queue_bridge_url=self._queue_bridge_url(project, owner, keys),
        )

    def _queue_bridge_url(self, project: ProjectRow, owner: TenantRow | None, keys: OpenKeys | None) -> str | None:
        """Where the project's messages are delivered: below the public URL, or else a path that the gateway completes.
        None where they do not come over HTTP.
        """
        stream, base = project.queue_stream, self._public_url
        if not stream or owner is None or keys is None or nats_stream(stream) is not None:
            return None
        return sink_url(base, owner.slug, project.slug, queue_token(keys.current, project.slug, stream))


def _entry(project: ProjectRow) -> ProjectEntry:
    return ProjectEntry(
        id=project.id,
        tenant=project.tenant,
        slug=project.slug,
        endpoint_url=project.endpoint_url,
        keys=(),
        trigger_type=project.trigger_type,
        queue_stream=project.queue_stream,
    )
