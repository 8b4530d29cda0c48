"""The audit log: what is in it, who reads it, that nothing changes it, and how long it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.errors import DomainError, InvalidInput, PermissionDenied, Unauthenticated
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from services.core.store.sessions import STRANGERS_A_MINUTE, audit_stranger
from services.scheduler.duties.access import ForgetAccess
from tests.support.access_stage import PASSWORD, Stage, access_stage
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

WINDOW_MS = 2 * 3_600_000


@pytest.fixture
async def stage(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Stage]:
    async with access_stage(database, sealer) as made:
        yield made


async def test_what_is_refused_is_written_down(stage: Stage, tenant: int) -> None:
    viewer = await stage.member(tenant, "view@example.com", "viewer")
    for request in (pb.CreateProjectRequest(slug="x"), pb.ListTokensRequest()):
        with pytest.raises(PermissionDenied):
            await stage.ask(request, token=viewer)
    log = await stage.ask(pb.ListAuditEntriesRequest(action="permission."), token=BOOTSTRAP_TOKEN)
    assert [(line.action, line.subject) for line in log.entries] == [
        ("permission.denied", "ListTokens"),
        ("permission.denied", "CreateProject"),
    ]
    assert all(line.actor.startswith("view@example.com token:") for line in log.entries)


async def test_what_the_engine_refuses_is_written_down_too(stage: Stage, tenant: int) -> None:
    developer = await stage.member(tenant, "dev@example.com", "developer")
    await stage.user("new@example.com")
    with pytest.raises(PermissionDenied):
        await stage.ask(pb.AddMemberRequest(email="new@example.com", role="owner"), token=developer)
    assert (await stage.audit(tenant))[1:] == [("permission.denied", "AddMember")]


async def test_another_tenant_is_refused_in_the_log_of_the_tokens_own(stage: Stage, tenant: int) -> None:
    other = await stage.tenant("acme")
    with pytest.raises(PermissionDenied):
        await stage.ask(pb.GetCallerRequest(), token=BOOTSTRAP_TOKEN, tenant="acme")
    assert await stage.audit(tenant) == [("permission.denied", "X-Tenant-ID")]
    assert await stage.audit(other) == []


async def test_who_does_not_give_up_fills_no_log(stage: Stage, tenant: int) -> None:
    viewer = await stage.member(tenant, "view@example.com", "viewer")
    before = len(await stage.audit(tenant))
    for _ in range(20):
        with pytest.raises(PermissionDenied):
            await stage.ask(pb.ListTokensRequest(), token=viewer)
    assert len(await stage.audit(tenant)) == before + 1


async def test_failures_to_sign_in_are_in_the_log_of_each_tenant_of_the_user(stage: Stage, tenant: int) -> None:
    other, third = await stage.tenant("acme"), await stage.tenant("empty")
    user = await stage.user("ann@example.com")
    await stage.join(tenant, user, "viewer")
    await stage.join(other, user, "owner")
    typed = "my secret passphrase@oops"
    for email in ("ann@example.com", "nobody@example.com", typed.replace(" ", "-")):
        with pytest.raises(Unauthenticated):
            await stage.ask(pb.CreateSessionRequest(email=email, password="wrong"), token="")
    await stage.ask(pb.CreateSessionRequest(email="ann@example.com", password=PASSWORD), token="")
    for each in (tenant, other):
        lines = await stage.audit(each)
        assert [action for action, _ in lines] == ["login.failed", "session.create"]
        assert lines[0][1] == "ann@example.com"
    assert await stage.audit(third) == []
    strangers = [subject for action, subject in await stage.audit(0) if action == "login.failed"]
    assert len(strangers) == len(set(strangers)) == 2
    assert all(subject.startswith("unknown:") and "@" not in subject for subject in strangers)


async def test_strangers_fill_no_log(stage: Stage, tenant: int) -> None:
    async def attempt(number: int) -> None:
        async with stage.database.connection() as connection:
            await audit_stranger(connection, f"unknown:{number}")

    many = STRANGERS_A_MINUTE * 3
    await asyncio.gather(*(attempt(number) for number in range(many)))
    duty = ForgetAccess(stage.database, 400, WINDOW_MS)
    async with stage.database.connection() as connection:
        minutes = [
            row["attempts"] for row in await connection.fetch("select attempts from rt.login_window order by key")
        ]
        left_out = [attempts - STRANGERS_A_MINUTE for attempts in minutes if attempts > STRANGERS_A_MINUTE]
        lines = [subject for _, subject in await stage.audit(0)]
        # A minute may have ended between two of them.
        assert sum(minutes) == many
        assert len(minutes) in (1, 2)
        assert len(lines) == len(set(lines)) == many - sum(left_out)
        assert sum(left_out) >= STRANGERS_A_MINUTE
        # As long as others may still be counted, nothing is told.
        assert (await duty.run_once())["left_out"] == 0
        await connection.execute(
            "update rt.login_window set key = substr(key, 1, length(key) - 8)"
            " || int8send(rt.ms(rt.now()) / 60000 - 9 + row_number)"
            " from (select key as old, row_number() over (order by key) from rt.login_window) o where key = old"
        )
        assert (await duty.run_once())["left_out"] == len(left_out)
        told = [subject for _, subject in await stage.audit(0)][len(lines) :]
        assert [int(subject.split(" more with unknown addresses")[0]) for subject in told] == left_out
        assert await connection.fetchval("select count(*) from rt.login_window") == 0
        assert (await duty.run_once())["left_out"] == 0


async def test_it_is_read_in_pages_by_those_who_manage_the_tenant(stage: Stage, tenant: int) -> None:
    other = await stage.tenant("acme")
    theirs = await stage.member(other, "them@example.com", "owner")
    for number in range(7):
        await stage.ask(pb.CreateTokenRequest(name=f"t{number}"), token=BOOTSTRAP_TOKEN)
    seen: list[str] = []
    request = pb.ListAuditEntriesRequest(page_size=3, action="token.")
    while True:
        page = await stage.ask(request, token=BOOTSTRAP_TOKEN)
        seen += [line.subject.rpartition(" ")[2] for line in page.entries]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert seen == [f"t{number}" for number in reversed(range(7))]
    assert [line.action for line in (await stage.ask(pb.ListAuditEntriesRequest(), token=theirs)).entries] == [
        "token.create"
    ]
    viewer = await stage.member(tenant, "view@example.com", "viewer")
    with pytest.raises(PermissionDenied):
        await stage.ask(pb.ListAuditEntriesRequest(), token=viewer)
    for text in ("nonsense", "W10"):
        with pytest.raises(InvalidInput):
            await stage.ask(pb.ListAuditEntriesRequest(page_token=text), token=BOOTSTRAP_TOKEN)


@pytest.mark.parametrize(
    "statement",
    [
        "update rt.audit set subject = ''",
        "delete from rt.audit",
        "truncate rt.audit",
        "delete from rt.audit where false or true",
    ],
)
async def test_nothing_changes_it(stage: Stage, tenant: int, statement: str) -> None:
    await stage.ask(pb.CreateTokenRequest(name="one"), token=BOOTSTRAP_TOKEN)
    async with stage.database.connection() as connection:
        with pytest.raises(asyncpg.RaiseError, match="only appended to"):
            await connection.execute(statement)
    assert len(await stage.audit(tenant)) == 1


async def test_only_age_removes_lines(stage: Stage, tenant: int) -> None:
    async with stage.database.connection() as connection:
        for days in (401, 400, 399, 0):
            await connection.execute(
                "insert into rt.audit (tenant, actor, action, subject, at)"
                " values ($1, 'a', 'b', $2, rt.now() - $3 * interval '1 day' + interval '1 minute')",
                tenant,
                str(days),
                days,
            )
        duty = ForgetAccess(stage.database, 400, WINDOW_MS)
        assert (await duty.run_once())["audit"] == 1
        assert (await duty.run_once())["audit"] == 0
        assert [subject for _, subject in await stage.audit(tenant)] == ["400", "399", "0"]
        # What may remove old lines ends with the call.
        with pytest.raises(asyncpg.RaiseError):
            await connection.execute("delete from rt.audit")


async def test_ended_sessions_and_old_attempts_are_forgotten(stage: Stage, tenant: int) -> None:
    await stage.user("ann@example.com")
    for password in (PASSWORD, PASSWORD, "wrong"):
        try:
            await stage.ask(pb.CreateSessionRequest(email="ann@example.com", password=password), token="")
        except DomainError:
            continue
    async with stage.database.connection() as connection:
        await connection.execute(
            "update rt.session set expires_at = rt.now() - interval '1 s'"
            " where id = (select id from rt.session order by id limit 1)"
        )
        duty = ForgetAccess(stage.database, 400, WINDOW_MS)
        assert await duty.run_once() == {"left_out": 0, "sessions": 1, "attempts": 0, "audit": 0}
        await connection.execute("update rt.login_window set since = since - interval '90 minutes'")
        assert (await duty.run_once())["attempts"] == 0
        await connection.execute("update rt.login_window set since = since - interval '30 minutes'")
        assert await duty.run_once() == {"left_out": 0, "sessions": 0, "attempts": 1, "audit": 0}
        assert await connection.fetchval("select count(*) from rt.session") == 1
