"""A list that archives workflows tells how many of their runs are active, whoever declares it."""

from __future__ import annotations

from services.core.domain.function_answer import Introspection, SdkInfo
from services.core.domain.op import RunCompleted, Sleep
from services.core.domain.run import Status
from services.core.domain.workflow_record import ArchivedRecord
from services.core.engine.archived import archived_warning, count_archived
from services.core.engine.declare import Declared, Declarer
from services.core.engine.sync import Syncer
from services.core.store.database import Database
from tests.support.hand import Hand, hand
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "hand", "sealer", "tenant"]


async def declare(hand: Hand, body: bytes) -> Declared:
    return await Declarer(hand.database, lambda _: None).declare(hand.tenant, "default", body)


async def test_active_runs_are_counted_in_whatever_state_and_ended_ones_are_not(hand: Hand) -> None:
    await hand.declare({"name": "sold"}, {"name": "idle"}, {"name": "kept"})
    for workflow in ("sold", "sold", "kept"):
        await hand.start(workflow)
    asleep, ended = await hand.start("sold"), await hand.start("sold")
    assert await hand.answer(asleep, Sleep(id="nap", name="nap", for_ms=3_600_000)) is Status.SLEEPING
    assert await hand.answer(ended, RunCompleted()) is Status.COMPLETED
    declared = await declare(hand, b'{"workflows": [{"name": "kept"}]}')
    assert set(declared.archived) == {ArchivedRecord("sold", 3), ArchivedRecord("idle", 0)}
    again = await declare(hand, b'{"workflows": [{"name": "kept"}]}')
    assert again.archived == ()


async def test_counting_ends_somewhere_and_a_database_that_is_away_fails_nothing(hand: Hand) -> None:
    await hand.declare({"name": "sold"}, {"name": "kept"})
    for _ in range(3):
        await hand.start("sold")
    (sold,) = [row.id for row in (await declare(hand, b'{"workflows": []}')).workflows if row.name == "sold"]
    gone = {sold: "sold"}
    assert await count_archived(hand.database, hand.tenant, gone, most=2) == (ArchivedRecord("sold", 2, at_least=True),)
    assert await count_archived(hand.database, hand.tenant, gone, most=4) == (ArchivedRecord("sold", 3),)
    closed = Database(hand.database.dsn, name="closed", size=1)
    assert await count_archived(closed, hand.tenant, gone) == (ArchivedRecord("sold", None),)


async def test_a_worker_that_replaces_the_list_is_warned(hand: Hand) -> None:
    syncer = Syncer(hand.database, lambda _: None)

    async def connects(*names: str, code_version: int) -> tuple[str, ...]:
        brought = Introspection(
            sdk=SdkInfo(name="fake"), workflows=[{"name": name} for name in names], capabilities=frozenset()
        )
        return (await syncer.accept(hand.tenant, "default", brought, code_version=code_version)).warnings

    assert await connects("sold", "idle", "kept", code_version=1) == ()
    await hand.start("sold")
    (warning,) = await connects("kept", code_version=2)
    assert warning == "sold: archived; 1 of its runs are active, and go on only where it is served still"


def test_what_is_not_known_is_told_as_that() -> None:
    assert archived_warning(ArchivedRecord("w", 0)) is None
    assert "10,000 or more" in str(archived_warning(ArchivedRecord("w", 10_000, at_least=True)))
    assert "0 or more" in str(archived_warning(ArchivedRecord("w", 0, at_least=True)))
    assert "perhaps some" in str(archived_warning(ArchivedRecord("w", None)))
