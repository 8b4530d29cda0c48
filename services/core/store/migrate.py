"""Migrations: plain numbered SQL, applied once each, in order, by one process at a time.

Files are `NNNN_{pre|post}_{what}.sql`: "pre" is safe before the new code runs, "post" after the old is gone.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import asyncpg

FOLDER = Path(__file__).parent / "migrations"
_LOCK = 0x72756E72  # any fixed number: the advisory lock that serializes migrating processes


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its name without suffix, its text and the text's digest."""

    name: str
    sql: str
    digest: str


class MigrationMismatch(Exception):
    """A migration that was applied here differs from the file of that name: this code and this database do not belong
    together.
    """


def migrations(folder: Path = FOLDER) -> list[Migration]:
    """All migrations in order."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        found.append(Migration(path.stem, text, hashlib.sha256(text.encode()).hexdigest()))
    return found


async def missing_migrations(connection: asyncpg.Connection) -> list[str]:
    """Names of "pre" migrations that this code needs and the database does not have."""
    needed = [migration.name for migration in migrations() if "_pre_" in migration.name]
    if await connection.fetchval("select to_regclass('public.runr_migration')") is None:
        return needed
    applied = {row["name"] for row in await connection.fetch("select name from public.runr_migration")}
    return [name for name in needed if name not in applied]


async def migrate(dsn: str) -> list[str]:
    """Bring the database at `dsn` to this code's schema. Returns the names applied now; concurrent callers wait for
    the first.
    """
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("select pg_advisory_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists public.runr_migration "
            "(name text primary key, digest text not null, at timestamptz not null default now())"
        )
        rows = await connection.fetch("select name, digest from public.runr_migration")
        applied = {row["name"]: row["digest"] for row in rows}
        done = []
        for migration in migrations():
            if migration.name in applied:
                if applied[migration.name] != migration.digest:
                    raise MigrationMismatch(f"migration {migration.name} was applied in another form")
                continue
            async with connection.transaction():
                await connection.execute(migration.sql)
                await connection.execute(
                    "insert into public.runr_migration (name, digest) values ($1, $2)", migration.name, migration.digest
                )
            done.append(migration.name)
        return done
    finally:
        await connection.close()
