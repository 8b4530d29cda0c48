"""Sessions: signing in and out, rotation, passwords, and what those who try learn from the answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.caller import Caller
from services.core.domain.errors import (
    Conflict,
    DomainError,
    InvalidInput,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from services.core.engine.passwords import Cost, Passwords
from services.core.engine.sessions import Sessions
from services.core.engine.users import put_password, set_disabled
from services.core.runtime.ids import ulid_text
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import SessionSettings
from services.core.store.database import Database
from services.core.store.members import find_user
from tests.support.access_stage import CHEAP, PASSWORD, Stage, access_stage
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

EMAIL = "ann@example.com"
ATTEMPTS = 5


@pytest.fixture
async def stage(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Stage]:
    async with access_stage(database, sealer, settings=SessionSettings(login_attempts=ATTEMPTS)) as made:
        user = await made.user(EMAIL)
        await made.join(tenant, user, "developer")
        yield made


async def sign_in(stage: Stage, email: str = EMAIL, password: str = PASSWORD) -> str:
    """The secret of a new session."""
    made = await stage.ask(pb.CreateSessionRequest(email=email, password=password), token="")
    return str(made.secret)


async def who(stage: Stage, secret: str) -> pb.GetCallerResponse:
    found: pb.GetCallerResponse = await stage.ask(pb.GetCallerRequest(), token=secret)
    return found


async def later(stage: Stage, seconds: int) -> None:
    """Let so much time pass for sessions and attempts that are stored."""
    async with stage.database.connection() as connection:
        for statement in (
            "update rt.session set expires_at = expires_at - $1 * interval '1 s',"
            " former_until = former_until - $1 * interval '1 s'",
            "update rt.login_window set since = since - $1 * interval '1 s'",
        ):
            await connection.execute(statement, seconds)


async def test_a_session_is_a_token_with_all_that_the_role_holds(stage: Stage) -> None:
    secret = await sign_in(stage, "ANN@Example.com")
    found = await who(stage, secret)
    assert (found.email, found.role, found.session, len(found.abilities)) == (EMAIL, "developer", True, 4)
    async with stage.database.connection() as connection:
        rows = await connection.fetch(
            "select s::text as row from rt.session s union all select u::text from rt.users u"
        )
    assert len(rows) == 2
    assert not any(secret.removeprefix("rs_") in row["row"] or PASSWORD in row["row"] for row in rows)


async def test_a_wrong_password_and_an_address_of_nobody_are_told_alike(stage: Stage, tenant: int) -> None:
    await stage.user("mute@example.com", password=None)
    await stage.user("out@example.com")
    async with stage.database.connection() as connection:
        await connection.execute("update rt.users set disabled_at = rt.now() where email = 'out@example.com'")
    answers = []
    for email, password in (
        (EMAIL, "wrong"),
        (EMAIL, PASSWORD + " "),
        (EMAIL, "x" * 50_000),
        ("nobody@example.com", PASSWORD),
        ("mute@example.com", PASSWORD),
        ("mute@example.com", ""),
        ("out@example.com", PASSWORD),
    ):
        with pytest.raises(Unauthenticated) as refused:
            await sign_in(stage, email, password)
        answers.append((str(refused.value), refused.value.reason, refused.value.metadata))
    assert all(answer == ("e-mail or password is wrong", "WRONG_CREDENTIALS", {}) for answer in answers)


async def test_an_address_of_nobody_costs_a_hash_too() -> None:
    class Counting(Passwords):
        verified = 0

        def _verify(self, password: str, stored: str) -> bool:
            self.verified += 1
            return super()._verify(password, stored)

    passwords = Counting(Cost(passes=1, memory_kib=64))
    stored = await passwords.hash(PASSWORD)
    assert await passwords.fits(PASSWORD, stored)
    assert not await passwords.fits("wrong", stored)
    assert not await passwords.fits(PASSWORD, None)
    assert passwords.verified == 3


async def test_a_flood_of_sign_ins_waits_a_little_and_no_more() -> None:
    passwords = Passwords(Cost(passes=1, memory_kib=1024))
    results = await asyncio.gather(*(passwords.hash(str(number)) for number in range(200)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, Unavailable)]
    assert 0 < len(refused) < 200
    assert all(isinstance(result, str | Unavailable) for result in results)
    assert (await passwords.hash(PASSWORD)).startswith("$argon2id$v=19$m=1024,t=1,p=1$")


@pytest.mark.parametrize("email", [EMAIL, "nobody@example.com"])
async def test_attempts_are_limited_whoever_has_the_address(stage: Stage, email: str) -> None:
    results = await asyncio.gather(
        *(sign_in(stage, email, "wrong") for _ in range(ATTEMPTS * 4)), return_exceptions=True
    )
    kinds = [type(result) for result in results]
    assert kinds.count(Unauthenticated) == ATTEMPTS
    assert kinds.count(RateLimited) == ATTEMPTS * 3
    # Neither the right password nor another replica helps now.
    with pytest.raises(RateLimited) as refused:
        await sign_in(stage, email.upper())
    assert 0 < int(refused.value.metadata["retry_after_s"]) <= 900
    await later(stage, 901)
    if email == EMAIL:
        await sign_in(stage)


async def test_attempts_are_counted_over_all_replicas(stage: Stage, database: Database, sealer: Sealer) -> None:
    async with access_stage(database, sealer, settings=SessionSettings(login_attempts=ATTEMPTS)) as replica:
        for number in range(ATTEMPTS):
            with pytest.raises(Unauthenticated):
                await sign_in((stage, replica)[number % 2], EMAIL, "wrong")
        for each in (stage, replica):
            with pytest.raises(RateLimited):
                await sign_in(each)


async def test_attempts_that_are_too_many_prolong_nothing_and_success_begins_anew(stage: Stage) -> None:
    for _ in range(3):
        for _ in range(ATTEMPTS - 1):
            with pytest.raises(Unauthenticated):
                await sign_in(stage, EMAIL, "wrong")
        await sign_in(stage)


async def test_a_rotated_secret_passes_for_a_minute_beside_the_new_one(stage: Stage) -> None:
    first = await sign_in(stage)
    second = (await stage.ask(pb.RotateSessionRequest(), token=first)).secret
    assert (await who(stage, first)).token_id == (await who(stage, second)).token_id
    for secret in (first, second):
        with pytest.raises(Conflict):
            await stage.ask(pb.RotateSessionRequest(), token=secret)
    await later(stage, 61)
    with pytest.raises(Unauthenticated):
        await who(stage, first)
    third = (await stage.ask(pb.RotateSessionRequest(), token=second)).secret
    await who(stage, second)
    await who(stage, third)
    assert len({first, second, third}) == 3


async def test_a_session_ends_however_often_it_rotates(stage: Stage) -> None:
    first = await sign_in(stage)
    await later(stage, 6 * 3_600)
    second = (await stage.ask(pb.RotateSessionRequest(), token=first)).secret
    await later(stage, 6 * 3_600 - 5)
    await who(stage, second)
    await later(stage, 10)
    for call in (who(stage, second), stage.ask(pb.RotateSessionRequest(), token=second)):
        with pytest.raises(Unauthenticated):
            await call


async def test_signing_out_ends_this_session_and_no_other(stage: Stage) -> None:
    one, other = await sign_in(stage), await sign_in(stage)
    await stage.ask(pb.DeleteSessionRequest(), token=one)
    with pytest.raises(Unauthenticated):
        await who(stage, one)
    await who(stage, other)


async def test_a_changed_password_ends_the_other_sessions(stage: Stage) -> None:
    one, other = await sign_in(stage), await sign_in(stage)
    for current, new, path in (
        ("wrong", "another long password", "current_password"),
        (PASSWORD, "short", "new_password"),
        (PASSWORD, "", "new_password"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await stage.ask(pb.ChangePasswordRequest(current_password=current, new_password=new), token=one)
        assert [fault.path for fault in refused.value.errors] == [path]
        assert current not in str(refused.value)
    await stage.ask(
        pb.ChangePasswordRequest(current_password=PASSWORD, new_password="another long password"), token=one
    )
    await who(stage, one)
    with pytest.raises(Unauthenticated):
        await who(stage, other)
    with pytest.raises(Unauthenticated):
        await sign_in(stage)
    await sign_in(stage, EMAIL, "another long password")


class Overtaken(Passwords):
    """While it looks at a password, an operator gives the user another one, or keeps the user out."""

    def __init__(self, database: Database, change: str) -> None:
        super().__init__(Cost(passes=1, memory_kib=64))
        self._database = database
        self._change = change

    async def fits(self, password: str, stored: str | None) -> bool:
        fits = await super().fits(password, stored)
        async with self._database.transaction() as connection:
            user = await find_user(connection, EMAIL)
            assert user is not None
            if self._change == "password":
                await put_password(connection, self, user, "of the operator", actor="operator")
            elif not user.disabled:
                await set_disabled(connection, user, disabled=True, actor="operator")
        return fits


@pytest.mark.parametrize("change", ["password", "disable"])
async def test_who_is_changed_while_signing_in_has_no_session(
    stage: Stage, database: Database, sealer: Sealer, change: str
) -> None:
    cheaper = await Passwords(Cost(passes=1, memory_kib=32)).hash(PASSWORD)  # it would be hashed anew
    async with database.connection() as connection:
        await connection.execute("update rt.users set password = $1 where email = $2", cheaper, EMAIL)
    sessions = Sessions(database, sealer, stage.ids, Overtaken(database, change), SessionSettings())
    with pytest.raises(Unauthenticated, match="e-mail or password is wrong"):
        await sessions.sign_in(EMAIL, PASSWORD)
    async with database.connection() as connection:
        assert await connection.fetchval("select count(*) from rt.session") == 0
        found = await find_user(connection, EMAIL)
    assert found is not None
    assert found.disabled == (change == "disable")
    assert await CHEAP.fits("of the operator", found.password) == (change == "password")


async def test_the_password_of_an_operator_is_not_overwritten_with_the_former_one_shown(
    stage: Stage, database: Database, sealer: Sealer
) -> None:
    session = ulid_text(stage.ids.new())
    caller = Caller(1, session, frozenset(), "developer", await _user_id(database), EMAIL, signed_in=True)
    sessions = Sessions(database, sealer, stage.ids, Overtaken(database, "password"), SessionSettings())
    with pytest.raises(InvalidInput) as refused:
        await sessions.change_password(caller, PASSWORD, "another long password")
    assert [fault.path for fault in refused.value.errors] == ["current_password"]
    await sign_in(stage, EMAIL, "of the operator")


async def _user_id(database: Database) -> str:
    async with database.connection() as connection:
        user = await find_user(connection, EMAIL)
    assert user is not None
    return ulid_text(user.id)


async def test_the_password_is_not_guessed_through_a_session_either(stage: Stage) -> None:
    secret = await sign_in(stage)
    request = pb.ChangePasswordRequest(current_password="wrong", new_password="another long password")
    kinds = []
    for _ in range(ATTEMPTS + 2):
        with pytest.raises(DomainError) as refused:
            await stage.ask(request, token=secret)
        kinds.append(type(refused.value))
    assert kinds == [InvalidInput] * ATTEMPTS + [RateLimited] * 2


async def test_tokens_are_no_sessions(stage: Stage) -> None:
    for request in (
        pb.RotateSessionRequest(),
        pb.DeleteSessionRequest(),
        pb.ChangePasswordRequest(current_password=PASSWORD, new_password="another long password"),
    ):
        with pytest.raises(PermissionDenied, match="signed in"):
            await stage.ask(request, token=BOOTSTRAP_TOKEN)


async def test_a_session_makes_tokens_of_its_user(stage: Stage, tenant: int) -> None:
    secret = await sign_in(stage)
    made = await stage.ask(pb.CreateTokenRequest(name="mine", abilities=["workflows.view"]), token=secret)
    assert made.token.email == EMAIL
    found = await who(stage, made.secret)
    assert (found.session, list(found.abilities)) == (False, ["workflows.view"])


@pytest.mark.parametrize("closed", [False, True])
async def test_who_has_no_tenant_can_sign_out(stage: Stage, tenant: int, closed: bool) -> None:
    await stage.user("new@example.com")
    async with stage.database.connection() as connection:
        if closed:
            await connection.execute("update rt.tenant set disabled_at = rt.now()")
    secret = await sign_in(stage, EMAIL if closed else "new@example.com")
    found = await who(stage, secret)
    assert (found.tenant, found.role, list(found.abilities), found.session) == ("", "", [], True)
    listed = (await stage.ask(pb.ListTenantsRequest(), token=secret)).tenants
    assert [each.id for each in listed] == (["default"] if closed else [])
    for request in (pb.ListProjectsRequest(), pb.CreateTenantRequest(id="acme"), pb.ListAuditEntriesRequest()):
        with pytest.raises(PermissionDenied):
            await stage.ask(request, token=secret)
    with pytest.raises(PermissionDenied):
        await stage.ask(pb.GetCallerRequest(), token=secret, tenant="default")
    await stage.ask(pb.DeleteSessionRequest(), token=secret)
    with pytest.raises(Unauthenticated):
        await who(stage, secret)


async def test_what_was_once_hashed_for_less_is_hashed_anew(stage: Stage) -> None:
    cheaper = await Passwords(Cost(passes=1, memory_kib=32)).hash(PASSWORD)
    async with stage.database.connection() as connection:
        await connection.execute("update rt.users set password = $1 where email = $2", cheaper, EMAIL)
        await sign_in(stage)
        stored = await connection.fetchval("select password from rt.users where email = $1", EMAIL)
    assert "m=64,t=1" in stored
    await sign_in(stage)
