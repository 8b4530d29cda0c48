"""Who is asked for with every call is found by what is asked, however many there are of everything."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from services.core.engine.tokens import hash_token
from services.core.store.database import Database
from services.core.store.queries import queries
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

MANY = 2_000
TABLES = ("tenant", "users", "membership", "token", "session", "audit", "login_window")

FILL = (
    "insert into rt.tenant (slug) select 'many-' || i from generate_series(1, $1) i",
    "insert into rt.users (id, email, email_key)"
    " select gen_random_uuid(), i || '@x', i || '@x' from generate_series(1, $1) i",
    "insert into rt.membership (id, tenant, member, role)"
    " select gen_random_uuid(), t.id, u.id, 'owner' from rt.users u, lateral (select id from rt.tenant where id = 1"
    " union all select id from rt.tenant where slug = 'many-' || split_part(u.email, '@', 1)) t where $1 > 0",
    "insert into rt.token (id, tenant, name, hash, abilities, member)"
    " select gen_random_uuid(), 1, 'x', sha256(email::bytea), '{workflows.view}', id from rt.users where $1 > 0",
    "insert into rt.session (id, member, hash, expires_at)"
    " select gen_random_uuid(), id, sha256(('s' || email)::bytea), rt.now() + interval '1 h' from rt.users"
    " where $1 > 0",
    "insert into rt.login_window select sha256(i::text::bytea), 1, rt.now() from generate_series(1, $1) i",
    "insert into rt.audit (tenant, actor, action) select i % 2, 'a', 'b' from generate_series(1, $1) i",
)
STATEMENTS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("access", "authenticate", (hash_token("7@x"), None)),
    ("access", "authenticate", (hash_token("7@x"), "many-7")),
    ("access", "authenticate", (hash_token("s7@x"), None)),
    ("access", "authenticate", (hash_token(BOOTSTRAP_TOKEN), None)),
    ("access", "authenticate", (hash_token("nobody"), "many-9")),
    ("access", "list_tokens", (1, None, 2)),
    ("access", "list_audit", (1, None, "", 2)),
    ("sessions", "audit_stranger", (b"unknown addresses:", "unknown:7", 3)),
    ("sessions", "audit_left_out", (b"unknown addresses:", 3, 100)),
    ("members", "list_members", (1, None, 2)),
    ("members", "user_by_key", ("7@x",)),
)


async def read(connection: asyncpg.Connection) -> int:
    """Rows of these tables that were read so far, from tables and from indexes."""
    await connection.execute("select pg_stat_force_next_flush()")
    found = await connection.fetchval(
        """
        select sum(coalesce(t.seq_tup_read, 0) + coalesce(t.idx_tup_fetch, 0)
                   + (select coalesce(sum(i.idx_tup_read), 0) from pg_stat_user_indexes i where i.relid = t.relid))
        from pg_stat_user_tables t where t.schemaname = 'rt' and t.relname = any ($1)
        """,
        TABLES,
    )
    return int(found)


@pytest.mark.parametrize("planned_over_few", [True, False])
async def test_nobody_reads_more_than_was_asked_for(database: Database, tenant: int, planned_over_few: bool) -> None:
    async with database.connection() as connection:
        if planned_over_few:
            for file, name, values in STATEMENTS:
                await connection.fetch(queries(file)[name], *values)
        for statement in FILL:
            await connection.execute(statement, MANY)
        for file, name, values in STATEMENTS:
            before = await read(connection)
            await connection.fetch(queries(file)[name], *values)
            assert await read(connection) - before < 30, (name, values)
