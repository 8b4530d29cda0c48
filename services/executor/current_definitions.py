"""Definitions, endpoints and signing keys as they are now, for runs that are held: a hot step reads nothing, and yet a
rotated key, a new endpoint and a paused workflow are not those of the claim.

A run may be held for thousands of steps. Before each of them it asks here, which costs a look at memory as long as the
tenant's version was confirmed a moment ago. A hint that it has moved ends that at once; a hint that is lost costs at
most `max_age_s`, after which the version is read again, for all tenants in use together.
"""

from __future__ import annotations

import asyncio
import logging

from services.core.domain.errors import Unavailable
from services.core.engine.definitions import DefinitionsCache, TenantDefinitions
from services.core.store.database import Database
from services.executor.lease import Lease

log = logging.getLogger(__name__)

_PAUSE_S = 0.2


class CurrentDefinitions:
    """The definitions of the tenants whose runs this process holds."""

    def __init__(
        self, database: Database, cache: DefinitionsCache, *, max_age_s: float = 1.0, look_s: float = 0.4
    ) -> None:
        """`max_age_s`: how long ago the version must have been confirmed. `look_s`: how often `run` does it."""
        self._database = database
        self._cache = cache
        self._max_age_s = max_age_s
        self._look_s = look_s
        self._used: set[int] = set()
        self._in_use = asyncio.Event()
        self._reading = asyncio.Lock()

    def follow_known(self, lease: Lease) -> bool:
        """Give the lease what holds now if that is known without a wait. False: ask `follow`."""
        self._used.add(lease.tenant)
        self._in_use.set()
        known = self._cache.recent(lease.tenant, self._max_age_s)
        return known is not None and lease.follow(known)

    async def follow(self, lease: Lease) -> bool:
        """Give the lease what holds now. False: its project is deleted, and the run with it.

        Waits, while the version is not known, for as long as the database is away.
        """
        return lease.follow(await self._current(lease.tenant))

    async def changed(self, tenant: int) -> None:
        """A hint: the tenant's definitions have changed."""
        self._cache.doubt(tenant)

    async def run(self) -> None:
        """Confirm the versions of the tenants in use, so that no step waits for it. Until cancelled."""
        while True:
            await self._in_use.wait()
            await asyncio.sleep(self._look_s)
            self._in_use.clear()
            used, self._used = self._used, set()
            stale = [tenant for tenant in used if self._cache.recent(tenant, self._look_s) is None]
            if not stale:
                continue
            try:
                async with self._database.connection() as connection:
                    await self._cache.get_many(connection, stale)
            except Unavailable:
                log.debug("versions of definitions are not confirmed: the database is away")

    async def _current(self, tenant: int) -> TenantDefinitions:
        self._used.add(tenant)
        self._in_use.set()
        while (known := self._cache.recent(tenant, self._max_age_s)) is None:
            async with self._reading:  # who waits here finds it read by the one before
                if (known := self._cache.recent(tenant, self._max_age_s)) is not None:
                    break
                try:
                    async with self._database.connection() as connection:
                        return await self._cache.get(connection, tenant)
                except Unavailable:
                    await asyncio.sleep(_PAUSE_S)
        return known
