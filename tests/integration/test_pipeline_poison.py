"""The commit pipeline against a real Postgres: an item that cannot be stored fails alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.core.store.commit_item import Committed, StorageRefused
from services.core.store.pipeline import Pipeline
from tests.support.builders import item, serving, step_row
from tests.support.engine import database, postgres_url
from tests.support.live_rows import LiveRows, rows
from tests.support.pipeline import held, owner, pipeline, read, steps

__all__ = ["database", "owner", "pipeline", "postgres_url", "rows"]

POISON: dict[str, dict[str, Any]] = {
    "NUL in a text": {"output": "a\0b"},
    "too long an id": {"sid": "x" * 256},
    "an unknown kind": {"kind": "z"},
    "a number beyond its column": {"ms": 2**40},
    "a lone surrogate": {"name": "\ud800"},
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
@pytest.mark.parametrize("place", [0, 25, 49])
async def test_c23_one_poisonous_item_of_fifty_fails_alone(
    rows: LiveRows, owner: int, poison: dict[str, Any], place: int
) -> None:
    runs = await rows.start(50)
    await rows.claim(owner, runs)
    lives = [await read(rows, run) for run in runs]
    items = [item(live, "a") for live in lives]
    bad = step_row(lives[place], "a")._replace(**poison)
    items[place] = item(lives[place], step_rows=(bad,), steps=1)
    async with serving(rows.database, owner) as pipeline:
        answers = await asyncio.gather(*map(pipeline.commit, items), return_exceptions=True)
        assert isinstance(answers[place], StorageRefused)
        assert sum(isinstance(answer, Committed) for answer in answers) == 49
        before = await read(rows, runs[place])
        assert (before["rev"], before["steps"], before["st"]) == (0, 0, "r")
        await pipeline.commit(item(before, "safe"))
    assert await steps(rows, runs[place]) == ["safe"]


async def test_c23_a_step_that_is_stored_already_refuses_nobody(rows: LiveRows, owner: int, pipeline: Pipeline) -> None:
    live, other = await held(rows, owner), await held(rows, owner)
    await pipeline.commit(item(live, "a"))
    again = {**live, "rev": 1, "steps": 1}
    double = step_row(again, "a", 1, output='"changed"')
    await asyncio.gather(pipeline.commit(item(again, step_rows=(double,))), pipeline.commit(item(other, "a")))
    assert await rows.value("select output from rt.steps where run = $1", live["id"]) == '"a"'
