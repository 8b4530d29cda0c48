"""Passwords: Argon2id, a few at a time and away from the event loop (engine section 10)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from services.core.domain.errors import FieldError, Unavailable
from services.core.domain.text_rule import text_fault

Result = TypeVar("Result")

MIN_CHARACTERS = 12
MAX_BYTES = 1_024

_SALT_BYTES = 16
_HASH_BYTES = 32
_THREADS = 2
_MOST_WAITING = 32


@dataclass(frozen=True, slots=True)
class Cost:
    """What a hash costs: passes over so many KiB. The default takes about a tenth of a second."""

    passes: int = 3
    memory_kib: int = 32 * 1024


class Passwords:
    """Hashes and verifies. Only so many wait: a flood of sign-ins takes no more of the machine than two threads."""

    def __init__(self, cost: Cost | None = None) -> None:
        self._cost = cost or Cost()
        self._threads = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="passwords")
        self._waiting = 0
        self._nobody: str | None = None

    async def hash(self, password: str) -> str:
        """The PHC form of a new hash. Raises Unavailable."""
        return await self._run(self._derive, password)

    async def fits(self, password: str, stored: str | None) -> bool:
        """Whether the password is the one of a hash. None, for nobody, takes as long as any other. Raises
        Unavailable.
        """
        if self._nobody is None:
            self._nobody = await self._run(self._derive, os.urandom(_SALT_BYTES).hex())
        fits = await self._run(self._verify, password, stored or self._nobody)
        return fits and stored is not None

    def is_current(self, stored: str) -> bool:
        """Whether a hash has the cost that new ones have."""
        return f"$m={self._cost.memory_kib},t={self._cost.passes},p=1$" in stored

    async def _run(self, work: Callable[..., Result], *arguments: str) -> Result:
        if self._waiting >= _MOST_WAITING:
            raise Unavailable("too many sign in at this moment; try again")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        finally:
            self._waiting -= 1

    def _derive(self, password: str) -> str:
        function = Argon2id(
            salt=os.urandom(_SALT_BYTES),
            length=_HASH_BYTES,
            iterations=self._cost.passes,
            lanes=1,
            memory_cost=self._cost.memory_kib,
        )
        return function.derive_phc_encoded(password.encode())

    def _verify(self, password: str, stored: str) -> bool:
        try:
            Argon2id.verify_phc_encoded(password.encode(), stored)
        except InvalidKey:
            return False
        return True


def password_faults(path: str, password: str) -> list[FieldError]:
    """Why a text may not be a new password; the text itself is not told."""
    fault = text_fault(password, max_bytes=MAX_BYTES, what="a password")
    if fault is None and len(password) < MIN_CHARACTERS:
        fault = f"must have at least {MIN_CHARACTERS} characters"
    return [] if fault is None else [FieldError(path, fault)]
