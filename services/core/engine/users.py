"""Users: made by the operator of the installation, who vouches for their addresses (engine section 4).

A tenant's managers cannot make any: whoever made the user of somebody else's address could sign in with a password of
their own once another tenant lets that address in.
"""

from __future__ import annotations

import re
from uuid import UUID

import asyncpg

from services.core.domain.errors import Conflict, FieldError, InvalidInput, NotFound
from services.core.domain.safe_text import utf8_size
from services.core.engine.passwords import Passwords, password_faults
from services.core.runtime.ids import UlidFactory
from services.core.store.audit import write_audit_of_user
from services.core.store.members import UserRow, disable_user, find_user, insert_user, set_password
from services.core.store.sessions import delete_sessions_of

_MAX_EMAIL_BYTES = 254
_email = re.compile(r"[^@\s\x00-\x20\x7f\ud800-\udfff]+@[^@\s\x00-\x20\x7f\ud800-\udfff]+").fullmatch


def email_key(email: str) -> str:
    """What two spellings of an address have in common."""
    return email.lower()


def email_faults(email: str) -> list[FieldError]:
    """Why a text is no e-mail address."""
    if not _email(email) or utf8_size(email) > _MAX_EMAIL_BYTES:
        return [FieldError("email", f"must be an e-mail address of at most {_MAX_EMAIL_BYTES} bytes")]
    return []


async def create_user(
    connection: asyncpg.Connection,
    ids: UlidFactory,
    passwords: Passwords,
    *,
    email: str,
    password: str | None,
    actor: str,
) -> UserRow:
    """Make a user, who cannot sign in without a password. Raises InvalidInput, Conflict for an address that has one."""
    faults = email_faults(email) + ([] if password is None else password_faults("password", password))
    if faults:
        raise InvalidInput.of_all(faults)
    stored = None if password is None else await passwords.hash(password)
    user = UserRow(ids.new(), email, stored, disabled=False)
    if not await insert_user(connection, id=user.id, email=email, key=email_key(email), password=stored):
        raise Conflict(f"there is a user {email} already", reason="USER_EXISTS")
    await write_audit_of_user(connection, user.id, actor=actor, action="user.create", subject=email)
    return user


async def require_user(connection: asyncpg.Connection, email: str) -> UserRow:
    """The user of an address. Raises NotFound."""
    user = await find_user(connection, email_key(email))
    if user is None:
        raise NotFound(f"there is no user {email}")
    return user


async def put_password(
    connection: asyncpg.Connection,
    passwords: Passwords,
    user: UserRow,
    password: str,
    *,
    path: str = "password",
    actor: str,
    but: UUID | None = None,
) -> None:
    """Another password; all sessions of the user end, but one. `path` names the field in faults. Raises
    InvalidInput.
    """
    if faults := password_faults(path, password):
        raise InvalidInput.of_all(faults)
    await set_password(connection, user.id, await passwords.hash(password))
    await delete_sessions_of(connection, user.id, but=but)
    await write_audit_of_user(connection, user.id, actor=actor, action="password.change", subject=user.email)


async def set_disabled(connection: asyncpg.Connection, user: UserRow, *, disabled: bool, actor: str) -> None:
    """Keep a user out, with tokens and sessions, or let the user in again; sessions do not come back."""
    await disable_user(connection, user.id, disabled=disabled)
    if disabled:
        await delete_sessions_of(connection, user.id)
    action = "user.disable" if disabled else "user.enable"
    await write_audit_of_user(connection, user.id, actor=actor, action=action, subject=user.email)
