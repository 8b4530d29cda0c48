"""Tokens and the way into a fresh stack, against a real Postgres."""

from __future__ import annotations

import asyncio
import random

import pytest

from services.core.domain.caller import Caller
from services.core.domain.errors import InvalidInput, NotFound, PermissionDenied, Unauthenticated, Unavailable
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.engine.tokens import ALL_ABILITIES, create_token, delete_token
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory, ulid_uuid
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.store.access import create_tenant, list_tokens
from services.core.store.database import Database
from tests.support.engine import HandClock
from tests.support.tenancy import BOOTSTRAP_TOKEN, ENCRYPTION_KEY, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def ids() -> UlidFactory:
    return UlidFactory(SystemClock(), random.Random(1))


@pytest.fixture
async def authenticator(database: Database, tenant: int, clock: HandClock) -> StoreAuthenticator:
    return StoreAuthenticator(database, clock)


@pytest.fixture
async def owner(authenticator: StoreAuthenticator) -> Caller:
    return await authenticator.authenticate(BOOTSTRAP_TOKEN, None)


async def make(
    database: Database,
    owner: Caller,
    ids: UlidFactory,
    *,
    abilities: tuple[str, ...] = (),
    expires_ms: int | None = None,
    name: str = "ci",
) -> tuple[str, str]:
    """The id of a new token, as rows have it, and its secret."""
    async with database.transaction() as connection:
        made = await create_token(connection, owner, ids, name=name, abilities=abilities, expires_ms=expires_ms)
    return str(made.row.id), made.secret


async def test_the_bootstrap_token_may_do_everything(owner: Caller, tenant: int) -> None:
    assert owner.tenant == tenant
    assert owner.abilities == frozenset(ALL_ABILITIES)
    ulid_uuid(owner.token_id)


async def test_many_processes_bootstrap_at_once(database: Database, sealer: Sealer) -> None:
    tenants = await asyncio.gather(*(ensure_bootstrap(database, sealer, BOOTSTRAP_TOKEN) for _ in range(8)))
    assert len(set(tenants)) == 1
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from rt.token") == 1
        assert await connection.fetchval("select count(*) from rt.projects") == 1
        assert await connection.fetchval("select signing_key is not null from rt.projects")


async def test_a_foreign_encryption_key_is_refused_at_the_start(database: Database, tenant: int) -> None:
    with pytest.raises(SealBroken, match="RUNR_ENCRYPTION_KEY"):
        await ensure_bootstrap(database, Sealer(bytes(32)), BOOTSTRAP_TOKEN)
    await ensure_bootstrap(database, Sealer(bytes(32), retired=[ENCRYPTION_KEY]), BOOTSTRAP_TOKEN)


async def test_another_bootstrap_token_replaces_the_one_before(
    database: Database, tenant: int, sealer: Sealer, authenticator: StoreAuthenticator
) -> None:
    await ensure_bootstrap(database, sealer, "runr_test_another_token")
    await ensure_bootstrap(database, sealer, None)
    await authenticator.authenticate("runr_test_another_token", None)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(BOOTSTRAP_TOKEN, None)


async def test_a_bootstrap_token_that_was_taken_back_stays_so(
    database: Database, owner: Caller, sealer: Sealer
) -> None:
    async with database.transaction() as connection:
        await delete_token(connection, owner, owner.token_id)
    await ensure_bootstrap(database, sealer, BOOTSTRAP_TOKEN)
    with pytest.raises(Unauthenticated):
        await StoreAuthenticator(database, SystemClock()).authenticate(BOOTSTRAP_TOKEN, None)


async def test_a_token_is_stored_as_a_hash_only(database: Database, owner: Caller, ids: UlidFactory) -> None:
    _, secret = await make(database, owner, ids)
    assert secret.startswith("rt_")
    async with database.connection() as connection:
        rows = await connection.fetch("select k::text as row from rt.token k union all select a::text from rt.audit a")
    assert len(rows) == 3
    assert all(secret.removeprefix("rt_") not in row["row"] for row in rows)


async def test_a_token_has_the_abilities_it_was_given(
    database: Database, owner: Caller, ids: UlidFactory, authenticator: StoreAuthenticator
) -> None:
    _, secret = await make(database, owner, ids, abilities=("workflows.view", "events.send"))
    caller = await authenticator.authenticate(secret, None)
    assert caller.abilities == {"workflows.view", "events.send"}
    with pytest.raises(PermissionDenied, match=r"workflows\.run"):
        await make(database, caller, ids, abilities=("workflows.view", "workflows.run"))
    _, inherited = await make(database, caller, ids)
    assert (await authenticator.authenticate(inherited, None)).abilities == caller.abilities


async def test_every_fault_of_a_new_token_is_listed(database: Database, owner: Caller, ids: UlidFactory) -> None:
    with pytest.raises(InvalidInput) as refused:
        await make(database, owner, ids, name="", abilities=("workflows.view", "root", "all"))
    assert [error.path for error in refused.value.errors] == ["name", "abilities[1]", "abilities[2]"]
    with pytest.raises(InvalidInput, match="future"):
        await make(database, owner, ids, expires_ms=1_000)


async def test_a_revoked_token_works_at_most_for_the_time_it_is_remembered(
    database: Database, owner: Caller, ids: UlidFactory, authenticator: StoreAuthenticator, clock: HandClock
) -> None:
    _, secret = await make(database, owner, ids)
    caller = await authenticator.authenticate(secret, None)
    async with database.transaction() as connection:
        await delete_token(connection, owner, caller.token_id)
    assert await authenticator.authenticate(secret, None) == caller
    clock.seconds += 5.0
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(secret, None)


async def test_a_remembered_token_ends_with_its_expiry(
    database: Database, owner: Caller, ids: UlidFactory, authenticator: StoreAuthenticator, clock: HandClock
) -> None:
    async with database.connection() as connection:
        now_ms = await connection.fetchval("select rt.ms(rt.now())")
    _, secret = await make(database, owner, ids, expires_ms=now_ms + 2_000)
    await authenticator.authenticate(secret, None)
    clock.seconds += 2.0
    async with database.connection() as connection:
        await connection.execute("update rt.token set expires_at = rt.now() where name = 'ci'")
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(secret, None)


async def test_an_unknown_token_is_remembered_too(
    database: Database, authenticator: StoreAuthenticator, clock: HandClock
) -> None:
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate("rt_nobody", None)
    await database.close()
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate("rt_nobody", None)
    clock.seconds += 5.0
    with pytest.raises(Unavailable):
        await authenticator.authenticate("rt_nobody", None)


@pytest.mark.parametrize("token", ["", "a b", "ünïcode", "x" * 201, "rt_\x00"])
async def test_what_cannot_be_a_token_is_refused_without_asking(
    database: Database, tenant: int, authenticator: StoreAuthenticator, token: str
) -> None:
    await database.close()
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(token, None)


async def test_a_caller_that_gives_up_ends_no_other_call(database: Database, tenant: int) -> None:
    authenticator = StoreAuthenticator(database, SystemClock())
    calls = [asyncio.create_task(authenticator.authenticate(BOOTSTRAP_TOKEN, None)) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert isinstance(answers[1], Caller)
    assert answers[1] == answers[2]


async def test_a_token_is_of_one_tenant(
    database: Database, owner: Caller, ids: UlidFactory, authenticator: StoreAuthenticator
) -> None:
    async with database.connection() as connection:
        other = await create_tenant(connection, "other", "Other")
    assert await authenticator.authenticate(BOOTSTRAP_TOKEN, "default") == owner
    for hint in ("other", "nowhere", str(owner.tenant), "DEFAULT"):
        with pytest.raises(PermissionDenied):
            await authenticator.authenticate(BOOTSTRAP_TOKEN, hint)
    stranger = Caller(tenant=other, token_id=owner.token_id, abilities=owner.abilities)
    with pytest.raises(NotFound):
        async with database.transaction() as connection:
            await delete_token(connection, stranger, owner.token_id)


async def test_a_disabled_tenant_keeps_everyone_out(database: Database, tenant: int) -> None:
    async with database.connection() as connection:
        await connection.execute("update rt.tenant set disabled_at = rt.now() where id = $1", tenant)
    with pytest.raises(PermissionDenied, match="disabled"):
        await StoreAuthenticator(database, SystemClock()).authenticate(BOOTSTRAP_TOKEN, None)


async def test_tokens_are_listed_in_pages_without_the_revoked(
    database: Database, owner: Caller, ids: UlidFactory
) -> None:
    made = [await make(database, owner, ids, name=f"t{number}") for number in range(5)]
    async with database.transaction() as connection:
        listed = await list_tokens(connection, owner.tenant, after=None, limit=10)
        gone = next(row for row in listed if str(row.id) == made[2][0])
        await connection.execute("update rt.token set revoked_at = rt.now() where id = $1", gone.id)
        first = await list_tokens(connection, owner.tenant, after=None, limit=3)
        second = await list_tokens(connection, owner.tenant, after=first[-1].id, limit=3)
    assert [row.name for row in (*first, *second)] == ["bootstrap", "t0", "t1", "t3", "t4"]


async def test_making_and_taking_back_is_audited(database: Database, owner: Caller, ids: UlidFactory) -> None:
    await make(database, owner, ids, name="robot")
    async with database.transaction() as connection:
        await delete_token(connection, owner, owner.token_id)
        rows = await connection.fetch("select actor, action, subject from rt.audit order by id")
    assert [row["action"] for row in rows] == ["token.create", "token.delete"]
    assert all(row["actor"] == f"token:{owner.token_id}" for row in rows)
    assert rows[0]["subject"].endswith(" robot")
