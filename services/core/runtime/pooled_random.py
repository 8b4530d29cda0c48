"""Random from the operating system, fetched in pools: ids take a few bytes each, and a call of the kernel costs more
than they do.
"""

from __future__ import annotations

import os
import random

_POOL_BYTES = 4_096


class PooledRandom(random.SystemRandom):
    """As `random.SystemRandom`. Not thread-safe, and not to be carried over a fork."""

    _pool = b""
    _at = 0

    def getrandbits(self, k: int, /) -> int:
        """A number of `k` random bits."""
        if k < 0:
            raise ValueError("number of bits must be non-negative")
        count = (k + 7) // 8
        return int.from_bytes(self._drawn(count), "big") >> (count * 8 - k)

    def hex(self, count: int) -> str:
        """`count` random bytes as hexadecimal text."""
        return self._drawn(count).hex()

    def _drawn(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._pool):
            self._pool, self._at, end = os.urandom(max(_POOL_BYTES, count)), 0, count
        drawn = self._pool[self._at : end]
        self._at = end
        return drawn
