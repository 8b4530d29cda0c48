"""A process that opens signing keys looks at its own key first."""

from __future__ import annotations

from services.core.engine.retrying import retrying
from services.core.engine.signing_keys import require_encryption_key
from services.core.runtime.lifecycle import Component
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database


class KeyCheck(Component):
    """Refuses to start with a key that opens no signing key: every run, or queue message, would be lost to it."""

    name = "encryption-key"

    def __init__(self, database: Database, sealer: Sealer) -> None:
        self._database = database
        self._sealer = sealer

    async def start(self) -> None:
        """See `Component.start`. Raises SealBroken."""
        await retrying(lambda _: self._check())

    async def _check(self) -> None:
        async with self._database.connection() as connection:
            await require_encryption_key(connection, self._sealer)
