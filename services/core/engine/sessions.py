"""Sessions: signing in by e-mail and password, rotation, signing out (engine sections 3 and 10).

An address that nobody has is answered as a wrong password is: the same words, after the same work.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

import asyncpg

from services.core.domain.caller import Caller
from services.core.domain.errors import (
    Conflict,
    InvalidInput,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from services.core.engine.passwords import MAX_BYTES, Passwords
from services.core.engine.tokens import actor_of, hash_token
from services.core.engine.users import email_faults, email_key, put_password
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import SessionSettings
from services.core.store.audit import write_audit_of_user
from services.core.store.database import Database
from services.core.store.members import UserRow, find_user, get_user, hold_user, set_password
from services.core.store.sessions import (
    audit_stranger,
    count_attempt,
    delete_session,
    forget_attempts,
    insert_session,
    rotate_session,
)

ROTATION_GRACE_MS = 60_000
"""So long passes the secret before, for requests that were on their way."""

_SECRET_BYTES = 32
_LOOKS = 3
_PRINT_BYTES = 4


@dataclass(frozen=True, slots=True, repr=False)
class OpenSession:
    """A session with its secret, which is shown once. `expires_ms` is unix milliseconds."""

    secret: str
    expires_ms: int
    email: str


class Sessions:
    """Sessions of users."""

    def __init__(
        self, database: Database, sealer: Sealer, ids: UlidFactory, passwords: Passwords, settings: SessionSettings
    ) -> None:
        self._database = database
        self._ids = ids
        self._passwords = passwords
        self._settings = settings
        self._digest_key = sealer.secret_for("sign-in attempts")

    async def sign_in(self, email: str, password: str) -> OpenSession:
        """Begin a session. Raises InvalidInput, Unauthenticated, RateLimited, Unavailable."""
        faults = email_faults(email)
        if faults:
            raise InvalidInput.of_all(faults)
        key = self._key(email)
        async with self._database.connection() as connection:
            await self._count(connection, key)
        for _ in range(_LOOKS):
            async with self._database.connection() as connection:
                user = await find_user(connection, email_key(email))
            able = user is not None and not user.disabled
            known = user.password if user is not None else None
            fits = await self._passwords.fits(password[:MAX_BYTES], known)
            if user is None or not (fits and able and len(password) <= MAX_BYTES):
                await self._failed(key, user)
                raise Unauthenticated("e-mail or password is wrong", reason="WRONG_CREDENTIALS")
            begun = await self._begin(key, user, password)
            if begun is not None:
                return begun
        raise Unavailable("this user is being changed; try again")

    async def rotate(self, caller: Caller) -> OpenSession:
        """Another secret for the caller's session. Raises PermissionDenied for a token, Conflict for the second one
        that asks within a minute.
        """
        _require_session(caller)
        secret = _new_secret()
        async with self._database.transaction() as connection:
            expires_ms = await rotate_session(
                connection, ulid_uuid(caller.token_id), hash_token(secret), ROTATION_GRACE_MS
            )
            if expires_ms is None:
                raise Conflict("this session has another secret since less than a minute", reason="ROTATED_JUST_NOW")
        return OpenSession(secret, expires_ms, caller.email)

    async def change_password(self, caller: Caller, current: str, new: str) -> None:
        """Another password for the user of the session, whose other sessions end. Raises PermissionDenied,
        InvalidInput, RateLimited.
        """
        _require_session(caller)
        key = self._key(caller.email)
        async with self._database.connection() as connection:
            await self._count(connection, key)
            user = await get_user(connection, ulid_uuid(caller.user_id or ""))
        if user is None or not await self._passwords.fits(current[:MAX_BYTES], user.password):
            raise _wrong_password()
        async with self._database.transaction() as connection:
            if not await _is_still(connection, user):
                raise _wrong_password()
            await put_password(
                connection,
                self._passwords,
                user,
                new,
                path="new_password",
                actor=actor_of(caller),
                but=ulid_uuid(caller.token_id),
            )
            await forget_attempts(connection, key)

    async def sign_out(self, caller: Caller) -> None:
        """End the caller's session. Raises PermissionDenied for a token."""
        _require_session(caller)
        async with self._database.transaction() as connection:
            await delete_session(connection, ulid_uuid(caller.token_id))
            await write_audit_of_user(
                connection,
                ulid_uuid(caller.user_id or ""),
                actor=actor_of(caller),
                action="session.delete",
                subject=caller.token_id,
            )

    async def _count(self, connection: asyncpg.Connection, key: bytes) -> None:
        attempts, left_ms = await count_attempt(connection, key, self._settings.login_window_ms)
        if attempts > self._settings.login_attempts:
            raise RateLimited(
                "too many attempts to sign in with this address",
                reason="TOO_MANY_ATTEMPTS",
                metadata={"retry_after_s": str(max(1, -(-left_ms // 1_000)))},
            )

    async def _begin(self, key: bytes, user: UserRow, password: str) -> OpenSession | None:
        """A session; None for a user who was changed while the password was looked at."""
        again = None
        if user.password is not None and not self._passwords.is_current(user.password):
            again = await self._passwords.hash(password)
        secret = _new_secret()
        async with self._database.transaction() as connection:
            if not await _is_still(connection, user):
                return None
            await forget_attempts(connection, key)
            if again is not None:
                await set_password(connection, user.id, again)
            id = self._ids.new()
            expires_ms = await insert_session(
                connection,
                id=id,
                user=user.id,
                secret_hash=hash_token(secret),
                ttl_ms=self._settings.session_ttl_ms,
            )
            actor = f"{user.email} session:{ulid_text(id)}"
            await write_audit_of_user(connection, user.id, actor=actor, action="session.create", subject=ulid_text(id))
        return OpenSession(secret, expires_ms, user.email)

    async def _failed(self, key: bytes, user: UserRow | None) -> None:
        async with self._database.connection() as connection:
            if user is None:
                # What was typed as the address of nobody may be a password: only a print of it is kept.
                await audit_stranger(connection, f"unknown:{key[:_PRINT_BYTES].hex()}")
            else:
                await write_audit_of_user(
                    connection, user.id, actor=user.email, action="login.failed", subject=user.email
                )

    def _key(self, email: str) -> bytes:
        return hmac.digest(self._digest_key, email_key(email).encode(), "sha256")


async def _is_still(connection: asyncpg.Connection, user: UserRow) -> bool:
    """Whether a user is as before, and stays so until the end of the transaction: looking at a password takes its time,
    in which another one may have ended all sessions of who knows the former.
    """
    await hold_user(connection, user.id)
    return await get_user(connection, user.id) == user


def _wrong_password() -> InvalidInput:
    return InvalidInput.of("current_password", "is not the password of this user", reason="WRONG_CREDENTIALS")


def _new_secret() -> str:
    return f"rs_{secrets.token_urlsafe(_SECRET_BYTES)}"


def _require_session(caller: Caller) -> None:
    if not caller.signed_in or caller.user_id is None:
        raise PermissionDenied("this is for somebody who has signed in, not for a token", reason="NOT_A_SESSION")
