"""Where writes are kept that their callers have named: one row a name, one statement a step."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from services.core.domain.named_write import KEPT_MS
from services.core.store.database import Database
from services.core.store.queries import queries


@dataclass(frozen=True, slots=True)
class WriteKey:
    """Whose name for a write it is, and of which method."""

    tenant: int
    token: str
    method: str
    name: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a write may begin. `result` is a word of `rt.begin_write_v1`, `age_ms` how long ago it was begun first."""

    result: str
    id: UUID
    age_ms: int
    answer: bytes | None


class NamedWrites:
    """The rows. Every method raises Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(
        self, key: WriteKey, asked: bytes, *, id: UUID, holder: UUID, hold_ms: int, repeats: bool
    ) -> Beginning:
        """Begin it, unless somebody has. `asked` is a digest of what is asked, `id` for what it makes; `repeats`: it
        may be begun again when nobody is at it.
        """
        async with self._database.connection() as connection:
            row = await connection.fetchrow(
                queries("named_writes")["begin"], *_columns(key), asked, id, holder, hold_ms, KEPT_MS, repeats
            )
        assert row is not None
        return Beginning(row["result"], UUID(int=row["id"].int), row["age_ms"], row["answer"])

    async def done(self, key: WriteKey, holder: UUID, answer: bytes | None) -> None:
        """It was carried out. `answer` None: it is not kept."""
        async with self._database.connection() as connection:
            await connection.execute(queries("named_writes")["done"], *_columns(key), holder, answer)

    async def forget(self, key: WriteKey, holder: UUID) -> None:
        """It was refused: nothing has happened."""
        async with self._database.connection() as connection:
            await connection.execute(queries("named_writes")["forget"], *_columns(key), holder)

    async def let_go(self, key: WriteKey, holder: UUID) -> None:
        """How it ended is not known, and nobody is at it any more."""
        async with self._database.connection() as connection:
            await connection.execute(queries("named_writes")["let_go"], *_columns(key), holder)

    async def prune(self, limit: int) -> int:
        """Take away at most so many that are too old; how many those were."""
        async with self._database.connection() as connection:
            tag: str = await connection.execute(queries("named_writes")["prune"], KEPT_MS, limit)
        return int(tag.rsplit(" ", 1)[-1])


def _columns(key: WriteKey) -> tuple[int, str, str, str]:
    return key.tenant, key.token, key.method, key.name
