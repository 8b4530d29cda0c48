"""Secrets at rest: AES-256-GCM under the key of RUNR_ENCRYPTION_KEY (engine section 10).

A sealed secret is `version (1) | key id (4) | nonce (12) | ciphertext and tag`. The key id says which key opens it, so
that the encryption key can be changed while secrets of the one before are still there. The place of a secret is
authenticated with it: copied into another tenant's row it does not open.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from services.core.runtime.lifecycle import StartRefused

_VERSION = 1
_ID_BYTES = 4
_NONCE_BYTES = 12
_HEAD_BYTES = 1 + _ID_BYTES + _NONCE_BYTES
KEY_MARK_BYTES = 1 + _ID_BYTES
"""How many bytes of a sealed secret say which key sealed it."""


class SealBroken(StartRefused):
    """A sealed secret does not open: another key, another place, or damaged bytes. The text holds no secret."""


class Sealer:
    """Seals with `key` and opens with it or with one of the `retired` keys; each has 32 bytes."""

    def __init__(self, key: bytes, *, retired: Sequence[bytes] = ()) -> None:
        self._key = key
        self._key_id = _key_id(key)
        self._ciphers = {_key_id(each): AESGCM(each) for each in (*retired, key)}

    def secret_for(self, purpose: str) -> bytes:
        """32 bytes that follow from the key, are the same in every process, and say nothing about it."""
        return hmac.digest(self._key, b"runr secret for " + purpose.encode(), "sha256")

    def seal(self, secret: str, place: str) -> bytes:
        """The secret, sealed for `place`, like `signing_key/3/17`."""
        nonce = os.urandom(_NONCE_BYTES)
        head = bytes((_VERSION,)) + self._key_id + nonce
        return head + self._ciphers[self._key_id].encrypt(nonce, secret.encode(), _authenticated(head, place))

    def open(self, sealed: bytes, place: str) -> str:
        """The secret that was sealed for `place`. Raises SealBroken."""
        head, body = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES:]
        if len(head) < _HEAD_BYTES or head[0] != _VERSION:
            raise SealBroken(f"the secret at {place} is not sealed in a form that this version knows")
        cipher = self._ciphers.get(head[1 : 1 + _ID_BYTES])
        if cipher is None:
            raise SealBroken(f"the secret at {place} was sealed with another key than RUNR_ENCRYPTION_KEY")
        try:
            return cipher.decrypt(head[-_NONCE_BYTES:], body, _authenticated(head, place)).decode()
        except InvalidTag:
            raise SealBroken(f"the secret at {place} is damaged, or was sealed for another place") from None

    def knows(self, sealed: bytes) -> bool:
        """Whether one of the keys has sealed this, by its head alone: the first bytes of a secret are enough."""
        return sealed[:1] == bytes((_VERSION,)) and sealed[1 : 1 + _ID_BYTES] in self._ciphers

    def is_current(self, sealed: bytes) -> bool:
        """Whether a secret is sealed with the current key, not with a retired one."""
        return sealed[1 : 1 + _ID_BYTES] == self._key_id


def _key_id(key: bytes) -> bytes:
    # A digest of its own, so that the id says nothing about the key.
    return hashlib.sha256(b"runr encryption key id" + key).digest()[:_ID_BYTES]


def _authenticated(head: bytes, place: str) -> bytes:
    return head[:KEY_MARK_BYTES] + place.encode()
