"""Tokens known from the store: the `Authenticator` of every service that has one (engine section 4)."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from services.core.domain.caller import Caller
from services.core.domain.errors import PermissionDenied, Unauthenticated
from services.core.engine.tokens import hash_token
from services.core.runtime.clock import Clock
from services.core.runtime.ids import ulid_text
from services.core.store.access import KnownToken, find_token
from services.core.store.database import Database

_TTL_S = 5.0
_MAX_REMEMBERED = 10_000
_token = re.compile(r"[A-Za-z0-9_.-]{1,200}").fullmatch


@dataclass(frozen=True, slots=True)
class _Remembered:
    until: float
    token: KnownToken | None


class StoreAuthenticator:
    """Looks tokens up by their hash and remembers the answer, also "not known", for at most `ttl_s`.

    So a token that was taken back works on for at most that long, and an expired one not at all.
    """

    def __init__(self, database: Database, clock: Clock, *, ttl_s: float = _TTL_S) -> None:
        self._database = database
        self._clock = clock
        self._ttl_s = ttl_s
        self._remembered: dict[bytes, _Remembered] = {}
        self._asking: dict[bytes, asyncio.Task[KnownToken | None]] = {}

    async def authenticate(self, token: str, tenant_hint: str | None) -> Caller:
        """See `Authenticator.authenticate`. A token belongs to one tenant, so any other hint is refused."""
        known = await self._find(hash_token(token)) if _token(token) else None
        if known is None:
            raise Unauthenticated("the token is not known, was taken back, or has expired")
        if tenant_hint is not None and tenant_hint != known.tenant_slug:
            raise PermissionDenied(f"this token is not of the tenant {tenant_hint[:100]!r}", reason="OTHER_TENANT")
        if known.tenant_disabled:
            raise PermissionDenied("the tenant is disabled", reason="TENANT_DISABLED")
        return Caller(tenant=known.tenant, token_id=ulid_text(known.id), abilities=known.abilities)

    async def _find(self, digest: bytes) -> KnownToken | None:
        remembered = self._remembered.get(digest)
        if remembered is not None and remembered.until > self._clock.monotonic():
            return remembered.token
        # One question at a time for a token, however many calls it comes with; a caller that gives up ends no other's.
        asking = self._asking.get(digest)
        if asking is None:
            asking = self._asking[digest] = asyncio.create_task(self._ask(digest), name="authenticate")
            asking.add_done_callback(lambda task: self._answered(digest, task))
        return await asyncio.shield(asking)

    async def _ask(self, digest: bytes) -> KnownToken | None:
        asked_at = self._clock.monotonic()
        async with self._database.connection() as connection:
            token = await find_token(connection, digest)
        ttl_s = self._ttl_s
        if token is not None and token.left_ms is not None:
            ttl_s = min(ttl_s, token.left_ms / 1_000)
        self._remember(digest, _Remembered(asked_at + ttl_s, token))
        return token

    def _answered(self, digest: bytes, task: asyncio.Task[KnownToken | None]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            task.exception()  # taken note of, also when every caller has gone

    def _remember(self, digest: bytes, remembered: _Remembered) -> None:
        self._remembered.pop(digest, None)
        while len(self._remembered) >= _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = remembered
