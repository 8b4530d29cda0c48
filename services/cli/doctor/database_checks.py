"""Looks at Postgres: does it answer, is it fit, is its schema this version's, and who else works with it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator

import asyncpg

from services.cli.doctor.finding import Finding, State
from services.core.domain.errors import Unavailable
from services.core.store.connect_fault import CONNECT_FAULTS, connect_fault
from services.core.store.database import UnfitDatabase, check_fitness
from services.core.store.migrate import migrations
from services.core.store.queries import queries

_OLDEST = 150_000
_MUST_BE_ON = ("fsync", "full_page_writes", "synchronous_commit")
_NEARLY_ALL = 0.9
_LONG_S = 300
_MANY_TENANTS, _LOCKS = 50, 256
_SKEW_S, _MOST_SKEW_S = 0.5, 5.0
_SILENT_S = 10
_DEAD_ROWS = 100_000
_TIMEOUT_S = 5.0
_NEEDED = {
    "executor": "runs wait, nothing executes them",
    "scheduler": "timers and cron wait, dead executors are not noticed",
}


async def opened(url: str) -> tuple[asyncpg.Connection | None, Finding]:
    """A connection whose statements end after some seconds, and what is to be said of it."""
    settings = {"statement_timeout": "20s", "default_transaction_read_only": "on", "application_name": "runr-doctor"}
    # As the engine's own sessions: by indexes, which is what makes these looks cheap.
    settings |= {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}
    try:
        connection = await asyncpg.connect(url, timeout=_TIMEOUT_S, command_timeout=30, server_settings=settings)
    except CONNECT_FAULTS as error:
        advice = "start it, or correct DATABASE_URL: nothing works without it"
        return None, Finding.of("postgres answers", connect_fault(error, url), advice)
    return connection, Finding("postgres answers")


async def server(connection: asyncpg.Connection) -> AsyncIterator[Finding]:
    """Whether the server may keep what the engine promises, and has room."""
    before = time.time()
    facts = await connection.fetchrow(queries("doctor")["facts"])
    after = time.time()
    old = f"{facts['version']} is older than 15" if facts["version"] < _OLDEST else ""
    yield Finding.of("postgres version", old, "upgrade Postgres")
    for name in _MUST_BE_ON:
        reason = "is off: acknowledged work can be lost" if facts[name] == "off" else ""
        yield Finding.of(f"postgres {name}", reason, f"set {name} = on; the engine refuses to start without")
    try:
        await check_fitness(connection)
        yield Finding("postgres keeps sessions")
    except (UnfitDatabase, Unavailable) as error:
        yield Finding.of("postgres keeps sessions", str(error), "connect directly, or through a pooler in session mode")
    used, most = facts["connections"], facts["most_connections"]
    crowded = f"{used} of {most} are in use" if used > _NEARLY_ALL * most else ""
    yield Finding.of(
        "postgres connections",
        crowded,
        "raise max_connections, or run fewer replicas (executor 8 each, ingest 12, scheduler 7)",
        state=State.WATCH,
    )
    yield _clock(facts["now_ms"] / 1_000, before, after)


def _clock(theirs: float, before: float, after: float) -> Finding:
    ahead = (before + after) / 2 - theirs
    off = max(0.0, abs(ahead) - (after - before) / 2)
    if off < _SKEW_S:
        return Finding("clock")
    side = "ahead of" if ahead > 0 else "behind"
    state = State.FAIL if off > _MOST_SKEW_S else State.WATCH
    return Finding(
        "clock", f"this machine is {abs(ahead):.1f} s {side} Postgres", "mend NTP on whichever is wrong", state
    )


async def schema(connection: asyncpg.Connection) -> AsyncIterator[Finding]:
    """Whether the schema is that of this version; only then the rest can be looked at."""
    if await connection.fetchval("select to_regclass('public.runr_migration')") is None:
        yield Finding.of("migrations", "the database is empty", "run `runr migrate`")
        return
    rows = await connection.fetch(queries("doctor")["applied_migrations"])
    yield _migrations({row["name"]: row["digest"] for row in rows})


def _migrations(applied: dict[str, str]) -> Finding:
    needed = {each.name: each.digest for each in migrations()}
    missing = [name for name in needed if name not in applied]
    other = [name for name, digest in applied.items() if needed.get(name, digest) != digest]
    if other:
        return Finding.of(
            "migrations",
            f"applied in another form: {', '.join(other)}",
            "this program and this database do not belong together: use the version that made it, or another database",
        )
    if missing:
        return Finding.of("migrations", f"missing: {', '.join(missing)}", "run `runr migrate` of this version")
    newer = [name for name in applied if name not in needed]
    if newer:
        reason = f"of a newer version: {', '.join(newer)}"
        return Finding("migrations", reason, "finish the upgrade", State.WATCH)
    return Finding("migrations")


async def company(connection: asyncpg.Connection) -> AsyncIterator[Finding]:
    """Who works with this database: our own processes, and others that stand in its way."""
    alive = {row["kind"]: row for row in await connection.fetch(queries("doctor")["living"])}
    for kind, without in _NEEDED.items():
        if kind not in alive:
            yield Finding.of(
                f"an {kind} lives" if kind == "executor" else f"a {kind} lives",
                f"none: {without}",
                f"start one: `runr serve {kind}`",
            )
            continue
        silent = alive[kind]["silent_s"]
        late = f"one has not beaten for {silent} s" if silent > _SILENT_S else ""
        yield Finding.of(
            f"{alive[kind]['n']} {kind}s live" if alive[kind]["n"] > 1 else f"1 {kind} lives",
            late,
            "does it reach Postgres, has it enough CPU? One that stays silent is buried, its runs go to others",
            state=State.WATCH,
        )
    for row in await connection.fetch(queries("doctor")["long_transactions"], _LONG_S):
        yield Finding(
            "no long transactions",
            f"{row['name']} (pid {row['pid']}) stands in one for {row['age_s']} s, {row['state']}",
            f"end it: select pg_terminate_backend({row['pid']}). It keeps dead rows alive, and all slows down",
            State.WATCH,
        )
    for finding in _bloated(await connection.fetch(queries("doctor")["bloat"], _DEAD_ROWS)):
        yield finding
    tenants = await connection.fetchval(queries("doctor")["tenants"])
    facts = await connection.fetchrow(queries("doctor")["facts"])
    few = f"{facts['locks']} for {tenants} tenants" if tenants > _MANY_TENANTS and facts["locks"] < _LOCKS else ""
    advice = "set max_locks_per_transaction = 256 or more: each tenant has eight tables"
    yield Finding.of("postgres locks", few, advice, state=State.WATCH)


def _bloated(rows: list[asyncpg.Record]) -> Iterator[Finding]:
    for row in rows:
        yield Finding(
            f"table rt.{row['name']}",
            f"{row['dead']} dead rows for {row['live']} living ones",
            "end long transactions; if there are none, look why autovacuum does not keep up",
            State.WATCH,
        )
    if not rows:
        yield Finding("hot tables are vacuumed")
