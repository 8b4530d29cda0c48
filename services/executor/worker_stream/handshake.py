"""How a worker and an executor get to know each other: both prove that they hold the project's signing key."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from uuid import UUID

from runr.workflows.v1 import worker_service_pb2 as pb

from services.core.domain.errors import DomainError
from services.core.domain.function_answer import Introspection, parse_introspection
from services.core.domain.op import FunctionFault
from services.core.domain.safe_text import cut, storable
from services.core.engine.definitions import DefinitionsCache, ProjectEntry
from services.core.engine.sync import Syncer, WorkerList
from services.core.runtime.off_loop import OffLoop
from services.core.runtime.version import engine_version
from services.core.store.access import find_tenant
from services.core.store.database import Database
from services.executor.worker_stream.session import MAX_CREDITS, MAX_INBOX_BYTES

PROTOCOL = 1
HEARTBEAT_S = 5.0
DEAD_AFTER_S = 15.0
BRING = "bring"
FEATURES = frozenset({"resume", BRING})
_NODE_BYTES = 200
_DEFINITIONS_BYTES = 4 * 1024 * 1024


class Refused(Exception):
    """The worker is not taken: `reason` for machines, the text for people."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Welcome:
    """A worker that is taken: its project, what became of its definitions, and the answer to it."""

    project: ProjectEntry
    session: str
    node: str
    credits: int
    resuming: bool
    brings: bool
    workflows: frozenset[str]
    workflow_ids: frozenset[int]
    ack: pb.HelloAck


def new_nonce() -> str:
    """A nonce for one stream."""
    return secrets.token_urlsafe(24)


class Handshake:
    """Judges the Hello of a worker."""

    def __init__(self, database: Database, definitions: DefinitionsCache, syncer: Syncer) -> None:
        self._database = database
        self._definitions = definitions
        self._syncer = syncer
        self._off_loop = OffLoop("worker-definitions")

    async def welcome(self, hello: pb.Hello, challenge: str) -> Welcome:
        """Take the worker in, with its definitions. Raises Refused, Unavailable."""
        _check(hello)
        project, key = await self._authenticate(hello, challenge)
        answer = await self._off_loop.run(len(hello.definitions), _introspection, hello)
        try:
            known = await self._syncer.accept(project.tenant, project.slug, answer, code_version=hello.code_version)
        except DomainError as error:
            raise Refused("INVALID_DEFINITIONS", error.message) from None
        return Welcome(
            project=project,
            session=str(UUID(hello.session)),
            node=cut(storable(hello.node), _NODE_BYTES) or "?",
            credits=min(hello.credits, MAX_CREDITS),
            resuming=hello.resuming,
            brings=BRING in hello.features,
            workflows=known.workflows,
            workflow_ids=await self._ids(project, known.workflows),
            ack=self._ack(hello, known, _sign(key, "runr-engine-v1", challenge, hello.nonce, hello.session)),
        )

    async def _authenticate(self, hello: pb.Hello, challenge: str) -> tuple[ProjectEntry, str]:
        """The project, and the key that the worker signed with. A wrong name looks like a wrong key to a stranger."""
        async with self._database.connection() as connection:
            tenant = await find_tenant(connection, hello.tenant)
            known = None if tenant is None else await self._definitions.get(connection, tenant.id)
        project = None if known is None else known.project_by_slug.get(hello.project)
        texts = (challenge, hello.nonce, hello.tenant, hello.project, hello.session, hello.definitions_hash)
        for key in project.keys if project is not None else ("",):
            signature = _sign(key, "runr-worker-v1", *texts)
            if hmac.compare_digest(signature.encode(), hello.signature.encode()) and project is not None:
                return project, key
        raise Refused(
            "UNAUTHENTICATED",
            f"no project {hello.project[:100]} of tenant {hello.tenant[:100]} has the key that this worker signs with",
        )

    async def _ids(self, project: ProjectEntry, workflows: frozenset[str]) -> frozenset[int]:
        """The ids of these workflows, of those that are stored."""
        async with self._database.connection() as connection:
            by_name = (await self._definitions.get(connection, project.tenant)).by_name
        return frozenset(by_name[key].id for name in workflows if (key := (project.id, name)) in by_name)

    def _ack(self, hello: pb.Hello, known: WorkerList, signature: str) -> pb.HelloAck:
        ack = pb.HelloAck(
            protocol=PROTOCOL,
            features=sorted(FEATURES & set(hello.features)),
            engine_version=engine_version(),
            max_unacked_bytes=MAX_INBOX_BYTES,
            definitions=_OUTCOMES[known.outcome],
            warnings=known.warnings,
            signature=signature,
        )
        ack.heartbeat_interval.FromMilliseconds(round(HEARTBEAT_S * 1_000))
        ack.dead_after.FromMilliseconds(round(DEAD_AFTER_S * 1_000))
        return ack


_OUTCOMES = {
    "unchanged": pb.DEFINITIONS_OUTCOME_UNCHANGED,
    "replaced": pb.DEFINITIONS_OUTCOME_REPLACED,
    "older": pb.DEFINITIONS_OUTCOME_OLDER,
}


def _check(hello: pb.Hello) -> None:
    if hello.protocol != PROTOCOL:
        raise Refused("UNSUPPORTED_PROTOCOL", f"the worker speaks protocol {hello.protocol}, this engine {PROTOCOL}")
    missing = sorted(set(hello.required_features) - FEATURES)
    if missing:
        raise Refused("MISSING_FEATURE", f"this engine lacks {', '.join(missing)[:500]}")
    try:
        UUID(hello.session)
    except ValueError:
        raise Refused("INVALID_HELLO", f"session {hello.session[:50]!r} is not a UUID") from None
    if hello.credits < 1:
        raise Refused("INVALID_HELLO", f"credits {hello.credits}: at least one invocation at once")
    for field in ("tenant", "project"):
        if "\x00" in getattr(hello, field):
            raise Refused("INVALID_HELLO", f"{field} has a NUL character")
    if len(hello.nonce) < 16:
        raise Refused("INVALID_HELLO", "nonce has fewer than 16 characters")
    if len(hello.definitions) > _DEFINITIONS_BYTES:
        raise Refused("INVALID_DEFINITIONS", f"definitions are longer than {_DEFINITIONS_BYTES} bytes")
    if hashlib.sha256(hello.definitions).hexdigest() != hello.definitions_hash:
        raise Refused("INVALID_HELLO", "definitions_hash is not the SHA-256 of definitions")


def _introspection(hello: pb.Hello) -> Introspection:
    try:
        return parse_introspection(200, hello.definitions)
    except FunctionFault as fault:
        raise Refused("INVALID_DEFINITIONS", str(fault)) from None


def _sign(key: str, *lines: str) -> str:
    return hmac.new(key.encode(), "\n".join(lines).encode(), hashlib.sha256).hexdigest()
