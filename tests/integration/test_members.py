"""Who is what in a tenant: nobody gives more than they have, the last owner stays, no tenant sees another's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from services.core.domain.role import ROLES
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from tests.support.access_stage import Stage, access_stage
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

HEIGHT = {"owner": 3, "admin": 2, "developer": 1, "viewer": 0}


@pytest.fixture
async def stage(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Stage]:
    async with access_stage(database, sealer) as made:
        yield made


async def test_what_each_role_may_do_is_what_its_tokens_may_do(stage: Stage, tenant: int) -> None:
    told = await stage.ask(pb.ListRolesRequest(), token=BOOTSTRAP_TOKEN)
    assert {role.name: tuple(role.abilities) for role in told.roles} == dict(ROLES)
    for role in ROLES:
        token = await stage.member(tenant, f"{role}@example.com", role)
        who = await stage.ask(pb.GetCallerRequest(), token=token)
        assert (who.role, who.email, tuple(who.abilities)) == (role, f"{role}@example.com", ROLES[role])


async def test_a_role_is_given_by_those_who_have_it(stage: Stage, tenant: int) -> None:
    tokens = {role: await stage.member(tenant, f"{role}@example.com", role) for role in ROLES}
    for giver, token in tokens.items():
        for role in ROLES:
            email = f"{giver}-makes-{role}@example.com"
            await stage.user(email)
            call = stage.ask(pb.AddMemberRequest(email=email, role=role), token=token)
            if giver != "viewer" and HEIGHT[role] <= HEIGHT[giver]:
                assert (await call).member.role == role
            else:
                with pytest.raises(PermissionDenied):
                    await call


async def test_nobody_touches_those_above_them(stage: Stage, tenant: int) -> None:
    tokens = {role: await stage.member(tenant, f"{role}@example.com", role) for role in ("admin", "developer")}
    above = await stage.join(tenant, await stage.user("boss@example.com"), "owner")
    admin = await stage.join(tenant, await stage.user("second@example.com"), "admin")
    for token, member in ((tokens["admin"], above), (tokens["developer"], above), (tokens["developer"], admin)):
        with pytest.raises(PermissionDenied):
            await stage.ask(pb.UpdateMemberRequest(member_id=member, role="viewer"), token=token)
        with pytest.raises(PermissionDenied):
            await stage.ask(pb.RemoveMemberRequest(member_id=member), token=token)
    changed = await stage.ask(pb.UpdateMemberRequest(member_id=admin, role="viewer"), token=tokens["admin"])
    assert changed.member.role == "viewer"


async def test_a_token_of_an_owner_that_was_given_less_gives_less(stage: Stage, tenant: int) -> None:
    user = await stage.user("owner@example.com")
    await stage.join(tenant, user, "owner")
    token = await stage.token(tenant, user, "owner", "workflows.manage", "workflows.view")
    for email in ("one@example.com", "two@example.com"):
        await stage.user(email)
    with pytest.raises(PermissionDenied):
        await stage.ask(pb.AddMemberRequest(email="one@example.com", role="developer"), token=token)
    await stage.ask(pb.AddMemberRequest(email="two@example.com", role="viewer"), token=token)


async def test_the_last_owner_stays(stage: Stage, tenant: int) -> None:
    first = await stage.join(tenant, await stage.user("first@example.com"), "owner")
    for request in (
        pb.RemoveMemberRequest(member_id=first),
        pb.UpdateMemberRequest(member_id=first, role="admin"),
    ):
        with pytest.raises(Conflict, match="last owner"):
            await stage.ask(request, token=BOOTSTRAP_TOKEN)
    second = await stage.join(tenant, await stage.user("second@example.com"), "owner")
    results = await asyncio.gather(
        *(stage.ask(pb.RemoveMemberRequest(member_id=each), token=BOOTSTRAP_TOKEN) for each in (first, second)),
        return_exceptions=True,
    )
    assert sorted(type(result).__name__ for result in results) == ["Conflict", "RemoveMemberResponse"]


async def test_an_owner_who_is_disabled_keeps_no_tenant(stage: Stage, tenant: int) -> None:
    await stage.join(tenant, await stage.user("gone@example.com"), "owner")
    left = await stage.join(tenant, await stage.user("left@example.com"), "owner")
    async with stage.database.connection() as connection:
        await connection.execute("update rt.users set disabled_at = rt.now() where email = 'gone@example.com'")
    with pytest.raises(Conflict, match="last owner"):
        await stage.ask(pb.RemoveMemberRequest(member_id=left), token=BOOTSTRAP_TOKEN)


async def test_a_removed_member_and_the_members_tokens_are_out(stage: Stage, tenant: int) -> None:
    user = await stage.user("dev@example.com")
    member = await stage.join(tenant, user, "developer")
    token = await stage.token(tenant, user, "developer")
    await stage.ask(pb.GetCallerRequest(), token=token)
    await stage.ask(pb.RemoveMemberRequest(member_id=member), token=BOOTSTRAP_TOKEN)
    with pytest.raises(Unauthenticated):
        await stage.ask(pb.GetCallerRequest(), token=token)


async def test_a_lower_role_takes_from_the_tokens_that_are_there(stage: Stage, tenant: int) -> None:
    user = await stage.user("dev@example.com")
    member = await stage.join(tenant, user, "developer")
    token = await stage.token(tenant, user, "developer", "workflows.run", "workflows.view")
    who = await stage.ask(pb.GetCallerRequest(), token=token)
    assert list(who.abilities) == ["workflows.run", "workflows.view"]
    await stage.ask(pb.UpdateMemberRequest(member_id=member, role="viewer"), token=BOOTSTRAP_TOKEN)
    who = await stage.ask(pb.GetCallerRequest(), token=token)
    assert (who.role, list(who.abilities)) == ("viewer", ["workflows.view"])


async def test_a_user_with_several_tenants_chooses_by_name(stage: Stage, tenant: int) -> None:
    user = await stage.user("two@example.com")
    other, third = await stage.tenant("acme"), await stage.tenant("closed")
    await stage.join(tenant, user, "viewer")
    await stage.join(other, user, "owner")
    token = await stage.token(tenant, user, "viewer")
    by_owner = await stage.token(other, user, "owner")
    listed = await stage.ask(pb.ListTenantsRequest(), token=token)
    assert [(each.id, each.role) for each in listed.tenants] == [("acme", "owner"), ("default", "viewer")]
    page = await stage.ask(pb.ListTenantsRequest(page_size=1), token=token)
    again = await stage.ask(pb.ListTenantsRequest(page_size=1, page_token=page.next_page_token), token=token)
    assert [each.id for each in (*page.tenants, *again.tenants)] == ["acme", "default"]
    for secret, chosen, tenant_name, role in (
        (token, None, "default", "viewer"),
        (token, "acme", "acme", "owner"),
        (by_owner, None, "acme", "owner"),
        (by_owner, "default", "default", "viewer"),
    ):
        who = await stage.ask(pb.GetCallerRequest(), token=secret, tenant=chosen)
        assert (who.tenant, who.role) == (tenant_name, role)
    # What the token was given holds in each of them.
    who = await stage.ask(pb.GetCallerRequest(), token=token, tenant="acme")
    assert list(who.abilities) == ["workflows.view"]
    refusals = []
    for name in ("closed", "nowhere"):
        with pytest.raises(PermissionDenied) as refused:
            await stage.ask(pb.GetCallerRequest(), token=token, tenant=name)
        refusals.append(str(refused.value).replace(name, "it"))
    assert refusals[0] == refusals[1]
    assert third


async def test_members_of_other_tenants_do_not_exist(stage: Stage, tenant: int) -> None:
    other = await stage.tenant("acme")
    theirs = await stage.join(other, await stage.user("them@example.com"), "viewer")
    for member in (theirs, "0" * 26, "no id"):
        with pytest.raises(NotFound) as missing:
            await stage.ask(pb.UpdateMemberRequest(member_id=member, role="viewer"), token=BOOTSTRAP_TOKEN)
        assert str(missing.value) == "there is no such member"
        with pytest.raises(NotFound):
            await stage.ask(pb.RemoveMemberRequest(member_id=member), token=BOOTSTRAP_TOKEN)
    assert not (await stage.ask(pb.ListMembersRequest(), token=BOOTSTRAP_TOKEN)).members


async def test_what_cannot_be_a_member_is_refused_with_its_field(stage: Stage, tenant: int) -> None:
    await stage.user("one@example.com")
    for email, role, path in (
        ("nobody@example.com", "viewer", "email"),
        ("no address", "viewer", "email"),
        ("one@example.com", "king", "role"),
        ("one@example.com", "", "role"),
    ):
        with pytest.raises(InvalidInput) as refused:
            await stage.ask(pb.AddMemberRequest(email=email, role=role), token=BOOTSTRAP_TOKEN)
        assert [fault.path for fault in refused.value.errors] == [path]
    await stage.ask(pb.AddMemberRequest(email="ONE@example.com", role="viewer"), token=BOOTSTRAP_TOKEN)
    with pytest.raises(Conflict, match="already"):
        await stage.ask(pb.AddMemberRequest(email="one@example.com", role="owner"), token=BOOTSTRAP_TOKEN)


async def test_changes_of_members_are_audited_with_who_made_them(stage: Stage, tenant: int) -> None:
    token = await stage.member(tenant, "boss@example.com", "owner")
    await stage.user("new@example.com")
    added = await stage.ask(pb.AddMemberRequest(email="new@example.com", role="viewer"), token=token)
    await stage.ask(pb.UpdateMemberRequest(member_id=added.member.id, role="admin"), token=token)
    await stage.ask(pb.UpdateMemberRequest(member_id=added.member.id, role="admin"), token=token)
    await stage.ask(pb.RemoveMemberRequest(member_id=added.member.id), token=token)
    log = await stage.ask(pb.ListAuditEntriesRequest(action="member."), token=token)
    assert [(line.action, line.subject) for line in log.entries] == [
        ("member.remove", "new@example.com admin, tokens: 0"),
        ("member.role", "new@example.com viewer -> admin"),
        ("member.add", "new@example.com viewer"),
    ]
    assert all(line.actor.startswith("boss@example.com token:") for line in log.entries)


async def test_a_user_makes_a_tenant_and_owns_it(stage: Stage, tenant: int) -> None:
    token = await stage.member(tenant, "boss@example.com", "developer")
    made = await stage.ask(pb.CreateTenantRequest(id="acme", name="Acme"), token=token)
    assert (made.tenant.id, made.tenant.name, made.tenant.role) == ("acme", "Acme", "owner")
    assert (await stage.ask(pb.GetCallerRequest(), token=token, tenant="acme")).role == "owner"
    for slug in ("", "-a", "Acme", "a" * 64):
        with pytest.raises(InvalidInput):
            await stage.ask(pb.CreateTenantRequest(id=slug), token=token)
    with pytest.raises(Conflict, match="taken"):
        await stage.ask(pb.CreateTenantRequest(id="default"), token=token)
    with pytest.raises(PermissionDenied, match="user"):
        await stage.ask(pb.CreateTenantRequest(id="other"), token=BOOTSTRAP_TOKEN)


async def test_tokens_of_those_above_are_not_taken_back(stage: Stage, tenant: int) -> None:
    owner = await stage.member(tenant, "boss@example.com", "owner")
    developer = await stage.member(tenant, "dev@example.com", "developer")
    listed = (await stage.ask(pb.ListTokensRequest(), token=developer)).tokens
    by_email = {token.email: token.id for token in listed}
    assert set(by_email) == {"", "boss@example.com", "dev@example.com"}
    for email in ("", "boss@example.com"):
        with pytest.raises(PermissionDenied):
            await stage.ask(pb.DeleteTokenRequest(token_id=by_email[email]), token=developer)
    await stage.ask(pb.DeleteTokenRequest(token_id=by_email["dev@example.com"]), token=developer)
    with pytest.raises(Unauthenticated):
        await stage.ask(pb.GetCallerRequest(), token=developer)
    await stage.ask(pb.DeleteTokenRequest(token_id=by_email[""]), token=owner)
