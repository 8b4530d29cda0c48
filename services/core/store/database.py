"""The way to Postgres: pool, transactions, the settings it must have, and its errors in the words of the domain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress

import asyncpg

from services.core.domain.errors import Unavailable
from services.core.runtime.lifecycle import StartRefused
from services.core.store.connect_fault import NOT_LET_IN, connect_fault

_SESSION = {
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
    # A plan that was made over an empty table stays when there are many rows: it must not be one that reads them all.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
    "statement_timeout": "30s",
    # Of a client that is frozen or gone in the middle of an answer, which no other of these times ends.
    "tcp_user_timeout": "30s",
}

_STATEMENT_S = 0  # for ever: what is said all the time is not parsed again every five minutes

# Faults that say nothing about the statement itself: the same call may succeed on another connection, or later.
PASSING = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.InvalidTransactionStateError,
    asyncpg.ObjectNotInPrerequisiteStateError,  # a lock that is not to be had in time; a standby
    asyncpg.QueryCanceledError,
)

# What the driver calls an internal fault where the server closes a connection: between two of its messages, or just as
# it is given back to the pool.
_CLOSED_MEANWHILE = ("cannot switch to state", "called on a free connection holder")


class UnfitDatabase(StartRefused):
    """The server does not let us in, its settings do not keep what the engine promises, or the connection goes through
    a transaction pooler.
    """


class ServerChanged(Exception):
    """Behind the same address is another server, or one that was promoted or restored: what was acknowledged may be
    gone there (rulings C3). Leases must be dropped and read again."""


async def connect(dsn: str, name: str, settings: Mapping[str, str] | None = None) -> asyncpg.Connection:
    """One connection of its own, with the engine's session settings, and further ones. Raises Unavailable."""
    session = {**_SESSION, **(settings or {}), "application_name": name}
    with translated():
        return await asyncpg.connect(
            dsn,
            server_settings=session,
            timeout=5,
            command_timeout=30,
            max_cached_statement_lifetime=_STATEMENT_S,
        )


@contextmanager
def translated() -> Iterator[None]:
    """Turn passing driver errors into Unavailable; other driver errors are bugs and stay what they are."""
    try:
        yield
    except PASSING as error:
        raise Unavailable("the database is away or overloaded") from error
    except asyncpg.InternalClientError as error:
        if not any(sign in str(error) for sign in _CLOSED_MEANWHILE):
            raise
        raise Unavailable("the database is away or overloaded") from error


class Database:
    """A pool of engine connections to one Postgres.

    One that was given back stays at hand for whoever comes next: to take a connection from the pool and to give it back
    costs as much as a small statement.
    """

    def __init__(self, dsn: str, *, name: str, size: int = 4) -> None:
        self._dsn = dsn
        self.name = name
        self.size = size
        self._pool: asyncpg.Pool | None = None
        self._at_hand: asyncpg.Connection | None = None
        self._wanted = 0
        """How many wait for a connection of the pool."""

    @property
    def dsn(self) -> str:
        """Where it is; holds the password."""
        return self._dsn

    @property
    def use(self) -> tuple[int, int] | None:
        """Connections that are open, and how many of them are idle; None while the pool is closed."""
        pool = self._pool
        at_hand = self._at_hand is not None and _is_usable(self._at_hand)
        return None if pool is None else (pool.get_size(), pool.get_idle_size() + at_hand)

    async def open(self) -> None:
        """Connect and check the server. Raises Unavailable, UnfitDatabase."""
        try:
            with translated():
                self._pool = await self._new_pool()
        except NOT_LET_IN as error:
            raise UnfitDatabase(connect_fault(error, self._dsn)) from error
        async with self.connection() as connection:
            await check_fitness(connection)

    async def _new_pool(self) -> asyncpg.Pool:
        return await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self.size,
            server_settings={**_SESSION, "application_name": self.name},
            timeout=5,
            command_timeout=30,
            max_inactive_connection_lifetime=3600,
            max_cached_statement_lifetime=_STATEMENT_S,
            reset=_keep,  # statements leave no session state behind; resetting would cost a round trip each time
        )

    async def close(self) -> None:
        """Close all connections; waits shortly for those in use."""
        pool, self._pool = self._pool, None
        at_hand, self._at_hand = self._at_hand, None
        if pool is not None:
            try:
                async with asyncio.timeout(3):
                    if at_hand is not None:
                        await _let_go(pool, at_hand)
                    await pool.close()
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection in autocommit: one statement, one transaction."""
        if self._pool is None:
            raise Unavailable("the database is not open")
        pool = self._pool
        with translated():
            connection = await self._take(pool)
            is_clean = False
            try:
                yield connection
                is_clean = True
            finally:
                if not (is_clean and self._keep(pool, connection)):
                    await pool.release(connection)

    async def _take(self, pool: asyncpg.Pool) -> asyncpg.Connection:
        connection, self._at_hand = self._at_hand, None
        if connection is not None:
            if _is_usable(connection):
                return connection
            await _let_go(pool, connection)
        self._wanted += 1
        try:
            return await pool.acquire(timeout=5)
        finally:
            self._wanted -= 1

    def _keep(self, pool: asyncpg.Pool, connection: asyncpg.Connection) -> bool:
        """Keep it at hand, unless somebody waits for it or the pool is closed."""
        if self._at_hand is not None or self._wanted or self._pool is not pool or not _is_usable(connection):
            return False
        self._at_hand = connection
        return True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection inside one READ COMMITTED transaction; each statement sees what is committed when it begins."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def ping(self) -> None:
        """Raises Unavailable when the server does not answer."""
        async with self.connection() as connection:
            await connection.fetchval("select 1")


async def server_identity(connection: asyncpg.Connection) -> str:
    """Which history the server writes: its system identifier and timeline. A failover or restore changes it."""
    identity: str = await connection.fetchval(
        "select system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8) from pg_control_system()"
    )
    return identity


async def _let_go(pool: asyncpg.Pool, connection: asyncpg.Connection) -> None:
    """Give back one that was at hand. The pool may take it back by itself at this moment, because it is lost."""
    with suppress(*PASSING, asyncpg.InternalClientError):
        await pool.release(connection)


def _is_usable(connection: asyncpg.Connection) -> bool:
    try:
        return not (connection.is_closed() or connection.is_in_transaction())
    except asyncpg.InterfaceError:  # it was lost, and the pool has taken it back
        return False


async def _keep(_connection: asyncpg.Connection) -> None:
    """Give a connection back as it is."""


async def check_fitness(connection: asyncpg.Connection) -> None:
    """Refuse a server that may forget what it acknowledged, and a pooler that loses the session. Raises
    UnfitDatabase.
    """
    for setting in ("fsync", "full_page_writes", "synchronous_commit"):
        value = await connection.fetchval("select current_setting($1)", setting)
        if value == "off":
            raise UnfitDatabase(
                f"Postgres runs with {setting} = off: a crash would lose what the engine acknowledged. "
                f"Set {setting} = on."
            )
    first = await connection.fetchval("select pg_backend_pid()")
    await connection.execute("select set_config('rt.session_probe', 'kept', false)")
    second = await connection.fetchrow(
        "select pg_backend_pid() as pid, current_setting('rt.session_probe', true) as probe"
    )
    if second is None or second["pid"] != first or second["probe"] != "kept":
        raise UnfitDatabase(
            "this address loses the session between statements (a pooler in transaction mode): "
            "the engine needs session mode or a direct connection"
        )
