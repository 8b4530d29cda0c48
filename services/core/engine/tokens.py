"""API tokens: made, shown once, stored as a hash (engine sections 4 and 10)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from services.core.domain.caller import Caller
from services.core.domain.errors import FieldError, InvalidInput, NotFound, PermissionDenied
from services.core.domain.role import OWNER, ROLES, may_touch
from services.core.domain.text_rule import text_fault
from services.core.runtime.ids import UlidFactory, ulid_text, ulid_uuid
from services.core.store.access import TokenRow, hold_token, insert_token, revoke_token, write_audit

ALL_ABILITIES = ROLES[OWNER]

OPERATOR = "operator:"
"""What the `token_id` of a caller begins with who works in the database itself, without a token."""

_SECRET_BYTES = 32
_MAX_NAME_BYTES = 100


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. `secret` is shown once and is nowhere stored."""

    row: TokenRow
    secret: str

    def __repr__(self) -> str:
        return f"NewToken(row={self.row!r}, secret=***)"


async def create_token(
    connection: asyncpg.Connection,
    caller: Caller,
    ids: UlidFactory,
    *,
    name: str,
    abilities: Sequence[str],
    expires_ms: int | None,
) -> NewToken:
    """Make a token in the caller's transaction and tenant, of the caller's user if there is one; without `abilities` it
    has those of the caller.

    Raises InvalidInput, PermissionDenied for an ability that the caller does not have.
    """
    _check(name, abilities)
    wanted = frozenset(abilities) or caller.abilities
    beyond = sorted(wanted - caller.abilities)
    if beyond:
        raise PermissionDenied(
            f"a token may do at most what its maker may: {', '.join(beyond)} is more", metadata={"ability": beyond[0]}
        )
    secret = f"rt_{secrets.token_urlsafe(_SECRET_BYTES)}"
    row = await insert_token(
        connection,
        id=ids.new(),
        tenant=caller.tenant,
        name=name,
        token_hash=hash_token(secret),
        abilities=wanted,
        expires_ms=expires_ms,
        user=None if caller.user_id is None else ulid_uuid(caller.user_id),
    )
    if row is None:
        raise InvalidInput.of("expires_at", "must be in the future")
    await _audit(connection, caller, "token.create", row.name, ulid_text(row.id))
    return NewToken(row, secret)


async def delete_token(connection: asyncpg.Connection, caller: Caller, token_id: str) -> None:
    """Take a token of the caller's tenant back, one's own or that of somebody who is not above the caller. Raises
    NotFound, PermissionDenied.
    """
    try:
        id = ulid_uuid(token_id)
    except ValueError:
        raise NotFound("there is no such token") from None
    held = await hold_token(connection, caller.tenant, id)
    if held is None:
        raise NotFound("there is no such token")
    own = held.user is not None and ulid_text(held.user) == caller.user_id
    if not own and not may_touch(caller.role, held.role):
        raise PermissionDenied(f"this is the token of an {held.role}, and you are {caller.role}", reason="HIGHER_ROLE")
    await revoke_token(connection, caller.tenant, id)
    await _audit(connection, caller, "token.delete", held.name, ulid_text(id))


def actor_of(caller: Caller) -> str:
    """Who it was, for the audit log."""
    if caller.token_id.startswith(OPERATOR):
        return caller.token_id
    bearer = f"{'session' if caller.signed_in else 'token'}:{caller.token_id}"
    return f"{caller.email} {bearer}" if caller.email else bearer


def hash_token(token: str) -> bytes:
    """What is stored of a token. Tokens are long and random, so a plain digest cannot be turned around."""
    return hashlib.sha256(token.encode()).digest()


def _check(name: str, abilities: Sequence[str]) -> None:
    faults = []
    if fault := text_fault(name, max_bytes=_MAX_NAME_BYTES, what="a name"):
        faults.append(FieldError("name", fault))
    for index, ability in enumerate(abilities):
        if ability not in ALL_ABILITIES:
            allowed = ", ".join(ALL_ABILITIES)
            faults.append(FieldError(f"abilities[{index}]", f"must be one of {allowed}, not {ability[:40]!r}"))
    if faults:
        raise InvalidInput.of_all(faults)


async def _audit(connection: asyncpg.Connection, caller: Caller, action: str, name: str, id: str) -> None:
    await write_audit(connection, tenant=caller.tenant, actor=actor_of(caller), action=action, subject=f"{id} {name}")
