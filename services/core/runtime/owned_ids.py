"""Ids that senders make, made their owner's own: whatever id is offered, it becomes no other owner's id."""

from __future__ import annotations

import hashlib
from uuid import UUID

from services.core.runtime.ids import uuid_of

_COUNTED_BITS = 32
_COUNTED = (1 << _COUNTED_BITS) - 1
_OWN_BYTES = 6
_RANDOM_BITS = _COUNTED_BITS + 8 * _OWN_BYTES


class OwnedIds:
    """Turns ULIDs that were offered into those that are stored, the same ones wherever the secret is the same.

    The time stays, and so do the lowest bits, by which a factory counts on: what was made in a row stays in a row. The
    bits between are a digest of all before them and of the owner, so nobody can name the id of a stranger.
    """

    def __init__(self, secret: bytes) -> None:
        """`secret` has at most 64 bytes; who knows it can find two offers that become one id."""
        self._secret = secret

    def of(self, offered: UUID, owner: int) -> UUID:
        """The id that `owner` gets for the one that was offered."""
        number = offered.int
        said = f"{number >> _COUNTED_BITS:x}/{owner}".encode()
        own = hashlib.blake2b(said, digest_size=_OWN_BYTES, key=self._secret).digest()
        time = number >> _RANDOM_BITS << _RANDOM_BITS
        return uuid_of(time | int.from_bytes(own) << _COUNTED_BITS | number & _COUNTED)
