"""A commit pipeline that serves an owner, and what the store knows of the runs that it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from services.core.store.database import Database
from services.core.store.pipeline import Pipeline
from tests.support.builders import serving
from tests.support.live_rows import LiveRows

Live = Mapping[str, Any]


@pytest.fixture
async def owner(rows: LiveRows) -> int:
    return await rows.owner()


@pytest.fixture
async def pipeline(database: Database, owner: int) -> AsyncIterator[Pipeline]:
    async with serving(database, owner) as served:
        yield served


async def held(rows: LiveRows, owner: int, **values: Any) -> Live:
    """The live row of a new run that `owner` holds."""
    return await read(rows, await rows.held(owner, **values))


async def read(rows: LiveRows, run: UUID) -> Live:
    row = await rows.live(run)
    assert row is not None
    return dict(row)


async def steps(rows: LiveRows, run: UUID) -> list[str]:
    return [row["sid"] for row in await rows.rows("select sid from rt.steps where run = $1 order by seq", run)]


async def everything(rows: LiveRows, run: UUID) -> list[object]:
    """All that the store knows of a run."""
    tables = {"live": "id", "steps": "run", "attempts": "run", "wait": "run", "ends": "run", "mark": "target"}
    return [
        await rows.rows(f"select to_json(t)::text from rt.{table} t where {key} = $1 order by 1", run)
        for table, key in tables.items()
    ] + [await used(rows)]


async def used(rows: LiveRows) -> int:
    """The steps that were counted, or are to be."""
    return int(
        await rows.value(
            "select coalesce((select sum(n) from rt.usage_delta where kind = 's'), 0)"
            " + coalesce((select sum(uses) from rt.live), 0)"
        )
    )
