"""Tokens and sessions known from the store: the `Authenticator` of every service that has one (engine section 4)."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass, replace

from services.core.domain.caller import Caller
from services.core.domain.errors import PermissionDenied, Unauthenticated, Unavailable
from services.core.domain.role import ROLES
from services.core.engine.denials import Denials
from services.core.engine.tokens import actor_of, hash_token
from services.core.runtime.clock import Clock
from services.core.runtime.ids import ulid_text
from services.core.store.access import KnownToken, find_token, touch_token
from services.core.store.audit import INSTALLATION
from services.core.store.database import Database

log = logging.getLogger(__name__)

_TTL_S = 5.0
_MAX_REMEMBERED = 10_000
_token = re.compile(r"[A-Za-z0-9_.-]{1,200}").fullmatch
_tenant = re.compile(r"[a-z0-9-]{1,63}").fullmatch

_Question = tuple[bytes, str | None]
"""The digest of a secret, and the slug of the tenant that is asked for."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A token as the store has it, and whom it makes the caller: None where it has no tenant to be one in."""

    token: KnownToken
    caller: Caller | None


@dataclass(frozen=True, slots=True)
class _Remembered:
    until: float
    known: _Known | None


class StoreAuthenticator:
    """Looks tokens up by their hash and remembers the answer, also "not known", for at most `ttl_s`.

    So a token that was taken back, or a role that was lowered, works on for at most that long, and what has expired not
    at all.
    """

    def __init__(self, database: Database, clock: Clock, *, ttl_s: float = _TTL_S) -> None:
        self._database = database
        self._clock = clock
        self._ttl_s = ttl_s
        self._remembered: dict[_Question, _Remembered] = {}
        self._asking: dict[_Question, asyncio.Task[_Known | None]] = {}
        self._touching: set[asyncio.Task[None]] = set()
        self._denials = Denials(database, clock)

    async def authenticate(self, token: str, tenant_hint: str | None) -> Caller:
        """See `Authenticator.authenticate`. A tenant that does not exist is one that the caller is no member of."""
        hint = None if tenant_hint is None else tenant_hint if _tenant(tenant_hint) else ""
        known = await self._find((hash_token(token), hint)) if _token(token) else None
        if known is None:
            raise Unauthenticated("the token is not known, was taken back, or has expired")
        if known.caller is not None:
            return known.caller
        found = known.token
        if found.place is not None:
            raise PermissionDenied("the tenant is disabled", reason="TENANT_DISABLED")
        await self._denials.note(found.home or INSTALLATION, actor_of(_bearer(found)), "X-Tenant-ID")
        named = "any tenant" if tenant_hint is None else f"the tenant {tenant_hint[:100]!r}"
        raise PermissionDenied(f"you are not a member of {named}", reason="OTHER_TENANT")

    async def denied(self, caller: Caller, method: str) -> None:
        """See `Authenticator.denied`."""
        await self._denials.note(caller.tenant, actor_of(caller), method.rpartition("/")[2])

    async def _find(self, question: _Question) -> _Known | None:
        remembered = self._remembered.get(question)
        if remembered is not None and remembered.until > self._clock.monotonic():
            return remembered.known
        # One question at a time for a token, however many calls it comes with; a caller that gives up ends no other's.
        asking = self._asking.get(question)
        if asking is None:
            asking = self._asking[question] = asyncio.create_task(self._ask(question), name="authenticate")
            asking.add_done_callback(lambda task: self._answered(question, task))
        return await asyncio.shield(asking)

    async def _ask(self, question: _Question) -> _Known | None:
        asked_at = self._clock.monotonic()
        async with self._database.connection() as connection:
            token = await find_token(connection, *question)
        ttl_s = self._ttl_s
        if token is not None and token.left_ms is not None:
            ttl_s = min(ttl_s, token.left_ms / 1_000)
        known = None if token is None else _Known(token, _caller(token, is_named=question[1] is not None))
        self._remember(question, _Remembered(asked_at + ttl_s, known))
        if token is not None and token.stale:
            touching = asyncio.create_task(self._touch(token), name="touch-token")
            self._touching.add(touching)
            touching.add_done_callback(self._touching.discard)
        return known

    async def _touch(self, token: KnownToken) -> None:
        """When a token was used last is of use to people only: no call waits for it, and none fails with it."""
        try:
            async with self._database.connection() as connection:
                await touch_token(connection, token.id)
        except Unavailable:
            log.debug("the use of a token was not written down", exc_info=True)

    def _answered(self, question: _Question, task: asyncio.Task[_Known | None]) -> None:
        self._asking.pop(question, None)
        if not task.cancelled():
            task.exception()  # taken note of, also when every caller has gone

    def _remember(self, question: _Question, remembered: _Remembered) -> None:
        self._remembered.pop(question, None)
        while len(self._remembered) >= _MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        self._remembered[question] = remembered


def _caller(token: KnownToken, *, is_named: bool) -> Caller | None:
    place = token.place
    if place is None or place.disabled:
        # Who has signed in and is nobody anywhere can still look around, change the password, and sign out.
        return replace(_bearer(token), tenant=INSTALLATION, role="") if token.signed_in and not is_named else None
    held = frozenset(ROLES[place.role])
    abilities = held if token.abilities is None else held & token.abilities
    return replace(_bearer(token), tenant=place.tenant, role=place.role, abilities=abilities)


def _bearer(token: KnownToken) -> Caller:
    """Who it is, wherever and whatever for."""
    return Caller(
        tenant=token.home or INSTALLATION,
        token_id=ulid_text(token.id),
        abilities=frozenset(),
        user_id=None if token.user is None else ulid_text(token.user),
        email=token.email,
        signed_in=token.signed_in,
    )
