"""Definitions as every service uses them on its hot path: parsed once, right whenever they are asked for.

A change of a project or a definition moves `rt.defs_version` of its tenant in the same transaction. The cache reads
that version on the caller's own connection, so within a transaction it is as right as the transaction itself, and reads
the rest again only when it has moved. Who cannot ask every time takes what was `recent`ly confirmed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

import asyncpg

from services.core.domain.definition import Definition, QueueTrigger, Trigger, definition_from_json, version_hash
from services.core.domain.definition import EventTrigger as DeclaredEvent
from services.core.domain.expression import Expression, parse
from services.core.domain.queue_message import queue_event_name
from services.core.engine.signing_keys import place
from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.runtime.settings import FunctionSettings
from services.core.store.workflows import definitions_version, definitions_versions, load_projects, load_workflows

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_TENANTS = 4096


@dataclass(frozen=True, slots=True)
class ProjectEntry:
    """A project. `keys` sign requests: the current one first, then the one before while it signs along.

    They are empty where this process does not sign, and where the project has no key that opens. `by_workers`: it has
    no endpoint of its own and a worker has declared its workflows, so workers alone serve it.
    """

    id: int
    tenant: int
    slug: str
    endpoint_url: str | None
    keys: tuple[str, ...] = field(repr=False)
    trigger_type: str
    queue_stream: str | None
    by_workers: bool = False


@dataclass(frozen=True, slots=True)
class WorkflowEntry:
    """A workflow. `version` is the hash of its definition; `idempotency` is the definition's expression, parsed.

    `gate_version` is that of its concurrency limits' keys (`rt.gate_rule`): 0 without limits.
    """

    id: int
    tenant: int
    project: int
    name: str
    definition: Definition
    is_active: bool
    archived: bool
    version: str
    idempotency: Expression | None = None
    gate_version: int = 0


@dataclass(frozen=True, slots=True)
class EventTrigger:
    """A trigger of a workflow, the `index`-th in its list. `condition` None: every event of the name.

    Workflows that are paused or archived have theirs too: an event tells that it skipped them.
    """

    workflow: WorkflowEntry
    index: int
    condition: Expression | None


@dataclass(frozen=True)
class TenantDefinitions:
    """Everything one tenant has declared. `by_name` is by (project id, workflow name), archived ones included."""

    tenant: int
    version: int
    projects: Mapping[int, ProjectEntry]
    workflows: Mapping[int, WorkflowEntry]
    by_name: Mapping[tuple[int, str], WorkflowEntry]
    by_event: Mapping[str, tuple[EventTrigger, ...]]
    project_by_slug: Mapping[str, ProjectEntry]


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What a definition's text comes to, kept for the next load: most definitions do not change with the version."""

    text: str
    definition: Definition
    version: str
    idempotency: Expression | None
    events: tuple[tuple[str, int, Expression | None], ...]


@dataclass(slots=True)
class _Cached:
    """Times are of the monotonic clock. `until`: when the first previous key stops signing along. `confirmed`: when the
    version was last asked for and was this one.
    """

    definitions: TenantDefinitions
    parsed: Mapping[int, _Parsed]
    until: float
    confirmed: float


class DefinitionsCache:
    """The definitions of the tenants that this process works for. Not thread-safe: one per event loop."""

    def __init__(
        self,
        sealer: Sealer | None,
        *,
        key_grace_ms: int = FunctionSettings.key_rotation_grace_ms,
        clock: Clock | None = None,
    ) -> None:
        """Without `sealer` no signing key is opened: for services that call no function."""
        self._sealer = sealer
        self._key_grace_ms = key_grace_ms
        self._clock = clock or SystemClock()
        self._tenants: dict[int, _Cached] = {}
        self._doubted: dict[int, float] = {}

    async def get(self, connection: asyncpg.Connection, tenant: int) -> TenantDefinitions:
        """The tenant's definitions as `connection` sees them; empty for a tenant that does not exist.

        Not within a transaction that changes definitions: what it undoes would be remembered under its version.
        """
        asked = self._clock.monotonic()
        return await self._at(connection, tenant, await definitions_version(connection, tenant), asked)

    async def at(self, connection: asyncpg.Connection, tenant: int, version: int | None) -> TenantDefinitions:
        """`get` for who has just read the version, on this connection."""
        return await self._at(connection, tenant, version, self._clock.monotonic())

    async def get_many(self, connection: asyncpg.Connection, tenants: Sequence[int]) -> Mapping[int, TenantDefinitions]:
        """`get` for each of them, with one read of their versions."""
        asked = self._clock.monotonic()
        versions = await definitions_versions(connection, tenants)
        return {tenant: await self._at(connection, tenant, versions.get(tenant), asked) for tenant in tenants}

    def recent(self, tenant: int, max_age_s: float) -> TenantDefinitions | None:
        """What was right at most `max_age_s` ago, without a read; None where that is not known or was doubted since."""
        cached, now = self._tenants.get(tenant), self._clock.monotonic()
        if cached is None or cached.until <= now or cached.confirmed < now - max_age_s:
            return None
        doubted = self._doubted.get(tenant)
        return None if doubted is not None and cached.confirmed < doubted else cached.definitions

    def held(self, tenant: int) -> TenantDefinitions | None:
        """What was right when it was last asked for, without a read: for who has its version compared in the statement
        that depends on it. None where nothing is held.
        """
        cached = self._tenants.get(tenant)
        return None if cached is None or cached.until <= self._clock.monotonic() else cached.definitions

    def doubt(self, tenant: int) -> None:
        """Somebody says that the tenant's definitions have changed: nothing that was read before is `recent`."""
        _remember(self._doubted, tenant, self._clock.monotonic())

    async def _at(
        self, connection: asyncpg.Connection, tenant: int, version: int | None, asked: float
    ) -> TenantDefinitions:
        """The definitions at `version`, which was asked for at `asked`."""
        if version is None:
            self._tenants.pop(tenant, None)
            return _indexed(tenant, 0, [], [], {})
        cached = self._tenants.get(tenant)
        if cached is None or cached.definitions.version != version or cached.until <= self._clock.monotonic():
            # The rows may be newer than the version that was read before them, never older: then it is read once more.
            cached = await self._load(connection, tenant, version, asked, cached)
            self._keep(tenant, cached)
        cached.confirmed = max(cached.confirmed, asked)
        return cached.definitions

    async def _load(
        self, connection: asyncpg.Connection, tenant: int, version: int, asked: float, before: _Cached | None
    ) -> _Cached:
        began = self._clock.monotonic()
        project_rows = await load_projects(connection, tenant, self._key_grace_ms)
        workflow_rows = await load_workflows(connection, tenant)
        known = before.parsed if before is not None else {}
        parsed = {row["id"]: _parsed(row["definition"], known.get(row["id"])) for row in workflow_rows}
        workflows = [_entry(tenant, row, parsed[row["id"]]) for row in workflow_rows]
        projects = [self._project(tenant, row) for row in project_rows]
        left_ms = [row["previous_left_ms"] for row in project_rows if row["previous_key"] is not None]
        until = began + min(left_ms) / 1_000 if left_ms else float("inf")
        return _Cached(_indexed(tenant, version, projects, workflows, parsed), parsed, until, asked)

    def _project(self, tenant: int, row: asyncpg.Record) -> ProjectEntry:
        return ProjectEntry(
            id=row["id"],
            tenant=tenant,
            slug=row["slug"],
            endpoint_url=row["endpoint_url"],
            keys=self._keys(tenant, row),
            trigger_type=row["trigger_type"],
            queue_stream=row["queue_stream"],
            by_workers=row["by_workers"],
        )

    def _keys(self, tenant: int, row: asyncpg.Record) -> tuple[str, ...]:
        sealed = [each for each in (row["signing_key"], row["previous_key"]) if each is not None]
        if self._sealer is None:
            return ()
        try:
            return tuple(self._sealer.open(each, place(tenant, row["id"])) for each in sealed)
        except SealBroken as error:
            # One project that cannot be called must not stop the tenant's others.
            log.error("a signing key does not open", extra={"project": row["slug"], "reason": str(error)})
            return ()

    def _keep(self, tenant: int, cached: _Cached) -> None:
        """Of two who read at once the one who asked later knows better."""
        before = self._tenants.get(tenant)
        if before is None or before.confirmed <= cached.confirmed:
            _remember(self._tenants, tenant, cached)


def _remember(notes: dict[int, T], tenant: int, note: T) -> None:
    """Keep a tenant's note as the newest, and not more notes than tenants are kept."""
    notes.pop(tenant, None)
    while len(notes) >= _MAX_TENANTS:
        del notes[next(iter(notes))]
    notes[tenant] = note


def _parsed(text: str, before: _Parsed | None) -> _Parsed:
    if before is not None and before.text == text:
        return before
    definition = definition_from_json(text)
    events = ((_event_of(trigger), index) for index, trigger in enumerate(definition.triggers))
    return _Parsed(
        text=text,
        definition=definition,
        version=version_hash([definition]),
        idempotency=None if definition.idempotency is None else parse(definition.idempotency),
        events=tuple((event[0], index, event[1]) for event, index in events if event is not None),
    )


def _event_of(trigger: Trigger) -> tuple[str, Expression | None] | None:
    """The event that a trigger waits for, and its condition; None for one that no event fires."""
    match trigger:
        case DeclaredEvent(event, if_):
            return event, None if if_ is None else parse(if_)
        case QueueTrigger(queue):
            return queue_event_name(queue), None
    return None


def _entry(tenant: int, row: asyncpg.Record, parsed: _Parsed) -> WorkflowEntry:
    return WorkflowEntry(
        id=row["id"],
        tenant=tenant,
        project=row["project"],
        name=row["name"],
        definition=parsed.definition,
        is_active=row["is_active"],
        archived=row["archived"],
        version=parsed.version,
        idempotency=parsed.idempotency,
        gate_version=row["gate_version"],
    )


def _indexed(
    tenant: int,
    version: int,
    projects: Iterable[ProjectEntry],
    workflows: Sequence[WorkflowEntry],
    parsed: Mapping[int, _Parsed],
) -> TenantDefinitions:
    by_event: dict[str, list[EventTrigger]] = {}
    for workflow in workflows:
        for event, index, condition in parsed[workflow.id].events:
            by_event.setdefault(event, []).append(EventTrigger(workflow, index, condition))
    by_id = {project.id: project for project in projects}
    return TenantDefinitions(
        tenant=tenant,
        version=version,
        projects=MappingProxyType(by_id),
        workflows=MappingProxyType({workflow.id: workflow for workflow in workflows}),
        by_name=MappingProxyType({(workflow.project, workflow.name): workflow for workflow in workflows}),
        by_event=MappingProxyType({event: tuple(triggers) for event, triggers in by_event.items()}),
        project_by_slug=MappingProxyType({project.slug: project for project in by_id.values()}),
    )
