"""Runs that are active of workflows which were archived just now: they go on only where somebody serves them still."""

from __future__ import annotations

from collections.abc import Mapping

from services.core.domain.errors import Unavailable
from services.core.domain.workflow_record import ArchivedRecord
from services.core.store.database import Database
from services.core.store.workflows import count_active

MOST = 10_000
"""How many runs are counted, of all the workflows together."""

_LIMIT_S = 2.0


async def count_archived(
    database: Database, tenant: int, gone: Mapping[int, str], *, most: int = MOST
) -> tuple[ArchivedRecord, ...]:
    """These workflows, names by id, with their active runs. Called after the commit: no lock waits for the count."""
    if not gone:
        return ()
    try:
        async with database.connection() as connection:
            found = await count_active(connection, tenant, list(gone), most=most, timeout_s=_LIMIT_S)
    except Unavailable:
        # The list is declared whatever can be told of it.
        return tuple(ArchivedRecord(name, None) for name in gone.values())
    is_all = sum(found.values()) < most
    return tuple(ArchivedRecord(name, found.get(id, 0), at_least=not is_all) for id, name in gone.items())


def archived_warning(archived: ArchivedRecord) -> str | None:
    """What is to be said of one in a sentence; None where nothing is active."""
    if archived.active_runs == 0 and not archived.at_least:
        return None
    number = "perhaps some" if archived.active_runs is None else f"{archived.active_runs:,}"
    more = " or more" if archived.at_least else ""
    return f"{archived.name}: archived; {number}{more} of its runs are active, and go on only where it is served still"
