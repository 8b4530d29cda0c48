"""Why a database cannot be used, in words for whoever has set DATABASE_URL. No password is in them."""

from __future__ import annotations

from urllib.parse import urlsplit

import asyncpg

from services.core.domain.errors import Unavailable

NOT_LET_IN = (
    asyncpg.InvalidAuthorizationSpecificationError,  # also a wrong password
    asyncpg.InvalidCatalogNameError,
    asyncpg.InsufficientPrivilegeError,
)
"""What waiting does not heal: the server is there and refuses."""

CONNECT_FAULTS = (OSError, TimeoutError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError, *NOT_LET_IN)
"""What can be wrong with an address, a server or an account."""


def connect_fault(error: Exception, dsn: str) -> str:
    """One sentence for one of CONNECT_FAULTS, with the address that was tried."""
    where = urlsplit(dsn).netloc.rpartition("@")[2] or "its default address"
    if isinstance(error, TimeoutError):
        return f"the database at {where} does not answer in time"
    if isinstance(error, OSError):
        return f"the database at {where} cannot be reached: {error.strerror or error}"
    # The first line is the message; what follows are details for the server's owner.
    said = str(error).partition("\n")[0]
    advice = "; check DATABASE_URL" if isinstance(error, NOT_LET_IN) else ""
    return f"the database at {where} refuses: {said}{advice}"


def away(unavailable: Unavailable, dsn: str) -> str:
    """The same for what has made a database Unavailable."""
    cause = unavailable.__cause__
    return connect_fault(cause, dsn) if isinstance(cause, CONNECT_FAULTS) else str(cause or unavailable)
