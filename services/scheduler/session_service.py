"""The gRPC face of sessions and of the audit log: translates, and calls what does the work."""

from __future__ import annotations

from typing import Any

from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.errors import InvalidInput
from services.core.engine.sessions import Sessions
from services.core.rpc import paging
from services.core.rpc.call_context import caller
from services.core.rpc.convert import timestamp
from services.core.store.audit import list_audit
from services.core.store.database import Database

_MAX_DIGITS = 18


class SessionMethods:
    """Methods of AccessService."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions

    async def CreateSession(self, request: pb.CreateSessionRequest, context: Any) -> pb.CreateSessionResponse:
        """Signs a user in."""
        made = await self._sessions.sign_in(request.email, request.password)
        return pb.CreateSessionResponse(secret=made.secret, expires_at=timestamp(made.expires_ms), email=made.email)

    async def RotateSession(self, request: pb.RotateSessionRequest, context: Any) -> pb.RotateSessionResponse:
        """Another secret for the caller's session."""
        made = await self._sessions.rotate(caller())
        return pb.RotateSessionResponse(secret=made.secret, expires_at=timestamp(made.expires_ms))

    async def ChangePassword(self, request: pb.ChangePasswordRequest, context: Any) -> pb.ChangePasswordResponse:
        """Another password for the user of the caller's session."""
        await self._sessions.change_password(caller(), request.current_password, request.new_password)
        return pb.ChangePasswordResponse()

    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Any) -> pb.DeleteSessionResponse:
        """Signs the caller out."""
        await self._sessions.sign_out(caller())
        return pb.DeleteSessionResponse()

    async def ListAuditEntries(self, request: pb.ListAuditEntriesRequest, context: Any) -> pb.ListAuditEntriesResponse:
        """A page of the audit log, newest first."""
        size = paging.page_size(request.page_size)
        position = paging.position_of(request, str)
        before = _number(str(position[0])) if position else None
        async with self._database.connection() as connection:
            rows = await list_audit(connection, caller().tenant, before=before, action=request.action, limit=size + 1)
        page = rows[:size]
        return pb.ListAuditEntriesResponse(
            entries=(
                pb.AuditEntry(
                    id=str(row.id), at=timestamp(row.at_ms), actor=row.actor, action=row.action, subject=row.subject
                )
                for row in page
            ),
            next_page_token=paging.next_token(request, [str(page[-1].id)]) if len(rows) > size else "",
        )


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS:
        raise InvalidInput.of("page_token", "is not a token of this list", reason="BAD_PAGE_TOKEN")
    return int(text)
