"""`rt.commit_rests_v1`: runs of several tenants that come to rest, go on and end in one commit."""

from __future__ import annotations

from uuid import UUID, uuid4

import asyncpg
import pytest

from services.core.domain.run import Status
from services.core.store.batch import prepared
from services.core.store.commit_item import AttemptRow, CommitItem, WaitRow
from tests.support.builders import ending, item
from tests.support.engine import database, postgres_url
from tests.support.live_rows import DAY_MS, LiveRows, rows
from tests.support.pipeline import held, owner

__all__ = ["database", "owner", "postgres_url", "rows"]


@pytest.fixture
async def others(rows: LiveRows) -> LiveRows:
    """Runs of another tenant."""
    return LiveRows(rows.database, await rows.value("select rt.create_tenant($1, '')", f"n{uuid4().hex[:12]}"))


async def commit(rows: LiveRows, owner: int, items: list[CommitItem]) -> dict[UUID, str]:
    statement, arguments = prepared(owner, items, now_s=0.0)
    assert "commit_rests_v1" in statement
    return {row["run"]: row["result"] for row in await rows.rows(statement, *arguments)}


def resting(live: asyncpg.Record, *waits: WaitRow, st: str = "w", **values: object) -> CommitItem:
    mine = tuple(wait._replace(run=live["id"], tenant=live["tenant"]) for wait in waits)
    return item(live, keep=False, st=st, wait_rows=mine, uses=1, **values)


async def test_each_run_of_a_commit_gets_its_own_whatever_tenant_it_is_of(
    rows: LiveRows, others: LiveRows, owner: int
) -> None:
    waits = [rows.wait("e", path="data.k", path_h=7, val_h=number, delay_ms=DAY_MS) for number in range(3)]
    nap = rows.wait("s", delay_ms=DAY_MS)
    first, second, third, fourth = [await held(one, owner) for one in (rows, others, rows, others)]
    kept, ended, failed, fenced = [await held(one, owner) for one in (others, rows, others, rows)]
    attempt = AttemptRow(failed["id"], others.tenant, 0, "b", 1, '{"name":"E","message":"m"}', None, 0)
    items = [
        resting(first, waits[0]),
        resting(second, waits[1], nap._replace(id=uuid4())),
        resting(third, waits[2], rows.wait("x")),
        resting(fourth, nap, st="s"),
        item(kept, "a", uses=1),
        ending(ended, "a"),
        resting(failed, rows.wait("b", delay_ms=DAY_MS), st="d", attempt_rows=(attempt,)),
        resting(fenced, rows.wait("s", delay_ms=DAY_MS), st="s", rev=9),
    ]
    results = await commit(rows, owner, items)
    assert results == {one.run: "f" if one.run == fenced["id"] else "d" for one in items}

    found = await rows.rows("select run, tenant, kind::text as kind, path_h, val_h from rt.wait")
    assert {tuple(row) for row in found} == {
        (first["id"], rows.tenant, "e", 7, 0),
        (second["id"], others.tenant, "e", 7, 1),
        (second["id"], others.tenant, "s", None, None),
        (third["id"], rows.tenant, "e", 7, 2),
        (third["id"], rows.tenant, "x", 0, 0),
        (fourth["id"], others.tenant, "s", None, None),
        (failed["id"], others.tenant, "b", None, None),
    }
    stands = {row["id"]: row["st"] for row in await rows.rows("select id, st::text as st from rt.live")}
    assert stands == {
        first["id"]: "w",
        second["id"]: "w",
        third["id"]: "w",
        fourth["id"]: "s",
        kept["id"]: "r",
        failed["id"]: "d",
        fenced["id"]: "r",
    }
    assert {row["run"] for row in await rows.rows("select run from rt.steps")} == {kept["id"], ended["id"]}
    attempts = await rows.rows("select run, tenant from rt.attempts")
    assert [tuple(row) for row in attempts] == [(failed["id"], others.tenant)]
    paths = await rows.rows("select tenant, path from rt.wait_path")
    assert {tuple(row) for row in paths} == {(rows.tenant, "data.k"), (others.tenant, "data.k")}


async def test_c5_a_wait_for_a_step_that_has_its_result_is_refused_for_each_tenant(
    rows: LiveRows, others: LiveRows, owner: int
) -> None:
    theirs, mine, spare = await held(others, owner), await held(rows, owner), await held(rows, owner)
    await commit(rows, owner, [item(theirs, "s"), resting(spare, st="s")])
    moved = await others.live(theirs["id"])
    assert moved is not None
    items = [resting(one, rows.wait("s", delay_ms=1), st="s") for one in (mine, moved)]
    with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="has its result is to wait"):
        await commit(rows, owner, items)
    assert await rows.status(mine["id"]) is Status.RUNNING
    assert await rows.value("select count(*) from rt.wait") == 0
