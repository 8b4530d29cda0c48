"""The signing key of a project: made here, sealed at once, shown only when it is asked for (engine section 10)."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

import asyncpg

from services.core.runtime.sealing import KEY_MARK_BYTES, SealBroken, Sealer
from services.core.store.projects import ProjectRow, key_marks, put_resealed, sealed_keys

_KEY_BYTES = 32
_PRINT_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made: what is stored of it."""

    sealed: bytes
    fingerprint: str


@dataclass(frozen=True, slots=True, repr=False)
class OpenKeys:
    """The keys of a project in the clear. `previous_until_ms` (unix) is when the one before stops signing along."""

    current: str
    previous: str | None
    previous_until_ms: int | None


def new_key(sealer: Sealer, tenant: int, project: int) -> NewKey:
    """A new random key `wfsk_…` for this project."""
    key = f"wfsk_{secrets.token_urlsafe(_KEY_BYTES)}"
    return NewKey(sealer.seal(key, place(tenant, project)), fingerprint(key))


def open_keys(sealer: Sealer, project: ProjectRow, grace_ms: int) -> OpenKeys | None:
    """The keys of a project, None when it has none. Raises SealBroken."""
    if project.signing_key is None:
        return None
    where = place(project.tenant, project.id)
    current = sealer.open(project.signing_key, where)
    until_ms = None if project.rotated_ms is None else project.rotated_ms + grace_ms
    if project.previous_key is None or until_ms is None or until_ms <= project.now_ms:
        return OpenKeys(current, None, None)
    return OpenKeys(current, sealer.open(project.previous_key, where), until_ms)


async def require_encryption_key(connection: asyncpg.Connection, sealer: Sealer) -> None:
    """Refuse to work with another encryption key than the one that the stored keys were sealed with.

    A process that cannot sign would burn the attempts of every run it takes. Raises SealBroken.
    """
    if not all(map(sealer.knows, await key_marks(connection, KEY_MARK_BYTES))):
        raise SealBroken(
            "the signing keys in this database were sealed with another key: set RUNR_ENCRYPTION_KEY to that one"
        )


async def reseal(connection: asyncpg.Connection, sealer: Sealer) -> tuple[int, int]:
    """Seal all signing keys with the current encryption key, in the caller's transaction. How many projects had one of
    another, and how many there are. Raises SealBroken, naming the project, where none of the keys opens one.
    """
    found = await sealed_keys(connection)
    changed = 0
    for row in found:
        where = place(row["tenant"], row["id"])
        before = (row["signing_key"], row["previous_key"])
        if all(key is None or sealer.is_current(key) for key in before):
            continue
        after = [None if key is None else sealer.seal(sealer.open(key, where), where) for key in before]
        await put_resealed(connection, row["tenant"], row["id"], *after)
        changed += 1
    return changed, len(found)


def fingerprint(key: str) -> str:
    """What may be shown of a key: enough to tell two apart, nothing to sign with."""
    return hashlib.sha256(key.encode()).hexdigest()[:_PRINT_CHARACTERS]


def place(tenant: int, project: int) -> str:
    """Where a key is sealed for; a key copied to another project or tenant does not open."""
    return f"signing_key/{tenant}/{project}"
