"""The sink of the queue bridge: a message that a project's queue consumer sends over HTTP (engine section 3).

Its address is its credential. Whatever is wrong with it (tenant, project, stream or token), the answer is the same, so
that nobody learns which projects exist.
"""

from __future__ import annotations

import logging

from services.core.domain.errors import NotFound, Unauthenticated, Unavailable
from services.core.domain.queue_message import nats_stream
from services.core.domain.queue_token import token_fits
from services.core.domain.safe_text import is_storable
from services.core.engine.bootstrap import DEFAULT_TENANT
from services.core.engine.dedupe import Accepted
from services.core.engine.deliver_message import MessageDeliverer
from services.core.engine.signing_keys import open_keys
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.store.access import find_tenant
from services.core.store.database import Database
from services.core.store.projects import ProjectRow, get_project

log = logging.getLogger(__name__)

CENTRAL = "central"
"""What the tenant of the platform itself is called in an address."""


class QueueSink:
    """Takes messages for projects whose queue stream is consumed elsewhere."""

    def __init__(self, database: Database, sealer: Sealer, deliverer: MessageDeliverer, *, key_grace_ms: int) -> None:
        """`key_grace_ms`: how long the key before the current one opens the old address after a rotation."""
        self._database = database
        self._sealer = sealer
        self._deliverer = deliverer
        self._key_grace_ms = key_grace_ms

    async def deliver(
        self, tenant: str, project: str, token: str, entry_id: str, fields: bytes, *, trace: str | None = None
    ) -> Accepted:
        """Accept one message of the stream of a project (its slug).

        Raises Unauthenticated for an address that is not that of a sink, Unavailable, and as `MessageDeliverer.entry`.
        """
        row = await self._project(tenant, project)
        if row is None or not row.queue_stream or not self._fits(row, row.queue_stream, token):
            raise Unauthenticated("this is not the address of a queue bridge")
        return await self._deliverer.deliver(
            row.tenant, row.id, row.queue_stream, entry_id, fields or b"{}", trace=trace
        )

    async def _project(self, tenant: str, project: str) -> ProjectRow | None:
        """The project, if it is one that has a sink."""
        if not is_storable(tenant + project):
            return None
        async with self._database.connection() as connection:
            owner = await find_tenant(connection, DEFAULT_TENANT if tenant == CENTRAL else tenant)
            if owner is None or owner.disabled:
                return None
            try:
                row = await get_project(connection, owner.id, project)
            except NotFound:
                return None
        serves = row.trigger_type == "workflow" and row.queue_stream and nats_stream(row.queue_stream) is None
        return row if serves else None

    def _fits(self, project: ProjectRow, queue_stream: str, token: str) -> bool:
        try:
            keys = open_keys(self._sealer, project, self._key_grace_ms)
        except SealBroken as error:
            # Not the sender's fault: the message must come again.
            log.error("a signing key does not open", extra={"project": project.slug, "reason": str(error)})
            raise Unavailable("the project's signing key does not open", reason="SEAL_BROKEN") from None
        held = [] if keys is None else [keys.current, *([keys.previous] if keys.previous is not None else [])]
        return token_fits(token, held, project.slug, queue_stream)
