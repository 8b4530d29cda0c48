"""Looks whether the functions of projects answer, by what the database knows of the last time that they were asked."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg

from services.cli.doctor.finding import Finding, State
from services.cli.table import counted, one_line
from services.core.store.queries import queries

_RUNS = 1_000
_RECENT_S = 900
_SHOWN = 3
_NAMES = ["FunctionUnreachable", "FunctionTimeout", "FunctionHttpError", "SignatureRejected", "EndpointRefused"]
_LONGEST = 300


async def functions(connection: asyncpg.Connection) -> AsyncIterator[Finding]:
    """Functions that did not answer when a run asked last, and those that could not be asked for their workflows."""
    try:
        away = await connection.fetch(queries("doctor")["functions_away"], _RUNS, _RECENT_S, _NAMES, _SHOWN)
    except asyncpg.QueryCanceledError:
        subject, reason = "functions answer", "not looked at: it took too long"
        yield Finding(subject, reason, "ask again when there is less to do", State.WATCH)
    else:
        yield Finding.of(
            "functions answer",
            "; ".join(map(_away, away)),
            "is it running, at the endpoint of the project, with its key? See docs/runbooks/function-errors.md",
            state=State.WATCH,
        )
    failed = await connection.fetch(queries("doctor")["syncs_failed"], _SHOWN)
    yield Finding.of(
        "functions tell their workflows",
        "; ".join(f"{_named(row)}: {_cut(row['message'] or 'it failed')}" for row in failed),
        "mend it, then `runr workflows sync --project SLUG`: see docs/how-to/serve-functions.md",
        state=State.WATCH,
    )


def _away(row: asyncpg.Record) -> str:
    told = _cut(f"{row['name']}: {row['message']}")
    return f"that of {_named(row)} did not answer {counted(row['runs'], 'run')}, the last {row['ago_s']} s ago: {told}"


def _named(row: asyncpg.Record) -> str:
    return f"project {row['project']} of tenant {row['tenant']}"


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
