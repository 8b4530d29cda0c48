"""`runr admin`: an installation is entered, changed and looked at by whoever has its database."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.cli.main import main
from services.core.domain.caller import Caller
from services.core.domain.errors import PermissionDenied, Unauthenticated
from services.core.engine.authenticate import StoreAuthenticator
from services.core.engine.passwords import Passwords
from services.core.runtime.clock import SystemClock
from services.core.store.database import Database

PASSWORD = "correct horse battery"


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


Admin = Callable[..., Said]


@pytest.fixture
def admin(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Admin:
    """Says something to `runr admin`, with a line for it to read."""
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setenv("RUNR_HOME", str(tmp_path))

    def say(*words: str, line: str = "") -> Said:
        monkeypatch.setattr("sys.stdin", io.StringIO(line))
        code = main(["admin", *words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return say


def ok(said: Said) -> Said:
    assert said.code == 0, said
    return said


def authenticate(url: str, token: str, tenant: str | None = None) -> Caller:
    async def ask() -> Caller:
        database = Database(url, name="test", size=2)
        await database.open()
        try:
            return await StoreAuthenticator(database, SystemClock()).authenticate(token, tenant)
        finally:
            await database.close()

    return asyncio.run(ask())


def rows(url: str, statement: str) -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(url)
        try:
            return [dict(row) for row in await connection.fetch(statement)]
        finally:
            await connection.close()

    return asyncio.run(ask())


def fits(url: str, email: str, password: str) -> bool:
    (row,) = rows(url, f"select password from rt.users where email = '{email}'")
    return asyncio.run(Passwords().fits(password, row["password"]))


def test_the_first_tenant_its_owner_and_a_token(admin: Admin, postgres_url: str) -> None:
    assert "made the tenant acme" in ok(admin("tenant", "create", "acme", "--name", "Acme")).out
    made = ok(admin("user", "create", "ann@example.com", "--tenant", "acme", line=f"{PASSWORD}\n"))
    assert made.out == "made the user ann@example.com, owner of acme\n"
    assert PASSWORD not in made.out + made.err
    assert fits(postgres_url, "ann@example.com", PASSWORD)
    created = ok(admin("token", "create", "ci", "--tenant", "acme", "--user", "ann@example.com", "--expires", "30d"))
    caller = authenticate(postgres_url, created.out.strip())
    assert (caller.role, caller.email, len(caller.abilities)) == ("owner", "ann@example.com", 4)
    listed = json.loads(ok(admin("token", "list", "--tenant", "acme", "--json")).out)
    assert [(token["name"], token["user"], bool(token["expires"])) for token in listed] == [
        ("ci", "ann@example.com", True)
    ]
    assert created.out.strip() not in ok(admin("token", "list", "--tenant", "acme")).out
    ok(admin("token", "revoke", listed[0]["id"], "--tenant", "acme"))
    with pytest.raises(Unauthenticated):
        authenticate(postgres_url, created.out.strip())


@pytest.mark.parametrize("line", ["", "\n", "\r\n"])
def test_who_gives_no_password_is_told_how_to_have_one_made(admin: Admin, postgres_url: str, line: str) -> None:
    said = admin("user", "create", "ann@example.com", line=line)
    assert (said.code, said.out) == (2, "")
    assert said.err == "runr admin: there is no password on stdin: --generate makes one up and prints it\n"
    assert rows(postgres_url, "select email from rt.users") == []
    ok(admin("user", "create", "ann@example.com", line=f"{PASSWORD}\n"))
    assert admin("user", "password", "ann@example.com", line=line).err == said.err
    assert fits(postgres_url, "ann@example.com", PASSWORD)


def test_a_token_of_the_installation_may_what_it_was_given(admin: Admin, postgres_url: str) -> None:
    ok(admin("tenant", "create", "acme"))
    words = ("token", "create", "ci", "--tenant", "acme", "--ability", "events.send", "--ability", "workflows.view")
    made = json.loads(ok(admin(*words, "--json")).out)
    caller = authenticate(postgres_url, made["token"])
    assert caller.user_id is None
    assert caller.abilities == {"events.send", "workflows.view"}
    ok(admin("user", "create", "vic@example.com", "--no-password", "--tenant", "acme", "--role", "viewer"))
    more = admin("token", "create", "ci", "--tenant", "acme", "--user", "vic@example.com", "--ability", "workflows.run")
    assert (more.code, more.err) == (
        1,
        "runr admin: a token may do at most what its maker may: workflows.run is more\n",
    )


def test_members_of_several_tenants(admin: Admin, postgres_url: str) -> None:
    ok(admin("user", "create", "ann@example.com", "--no-password"))
    for slug in ("acme", "shop"):
        ok(admin("tenant", "create", slug, "--owner", "ann@example.com"))
    ok(admin("user", "create", "bob@example.com", "--no-password", "--tenant", "acme", "--role", "viewer"))
    ok(admin("member", "add", "BOB@example.com", "--role", "developer", "--tenant", "shop"))
    ok(admin("member", "role", "bob@example.com", "admin", "--tenant", "shop"))
    users = {user["email"]: user["memberships"] for user in json.loads(ok(admin("user", "list", "--json")).out)}
    assert users == {"ann@example.com": "acme:owner shop:owner", "bob@example.com": "acme:viewer shop:admin"}
    ok(admin("member", "remove", "bob@example.com", "--tenant", "shop"))
    assert "bob" not in ok(admin("member", "list", "--tenant", "shop")).out
    last = admin("member", "remove", "ann@example.com", "--tenant", "shop")
    assert (last.code, "last owner" in last.err) == (1, True)


def test_tenants_and_users_are_closed_and_opened(admin: Admin, postgres_url: str) -> None:
    ok(admin("tenant", "create", "acme"))
    ok(admin("user", "create", "ann@example.com", "--no-password", "--tenant", "acme"))
    token = ok(admin("token", "create", "ci", "--tenant", "acme", "--user", "ann@example.com")).out.strip()
    ok(admin("tenant", "disable", "acme"))
    with pytest.raises(PermissionDenied, match="disabled"):
        authenticate(postgres_url, token)
    assert "yes" in ok(admin("tenant", "list")).out.split("acme")[-1]
    ok(admin("tenant", "enable", "acme"))
    ok(admin("user", "disable", "ann@example.com"))
    with pytest.raises(Unauthenticated):
        authenticate(postgres_url, token)
    ok(admin("user", "enable", "ann@example.com"))
    assert authenticate(postgres_url, token).email == "ann@example.com"


def test_a_password_is_set_anew(admin: Admin, postgres_url: str) -> None:
    made = ok(admin("user", "create", "ann@example.com", "--generate"))
    assert fits(postgres_url, "ann@example.com", made.out.split()[-1])
    ok(admin("user", "password", "ann@example.com", line=f"{PASSWORD}\n"))
    assert fits(postgres_url, "ann@example.com", PASSWORD)
    generated = ok(admin("user", "password", "ann@example.com", "--generate")).out.split()[-1]
    assert fits(postgres_url, "ann@example.com", generated)
    logged = ok(admin("audit")).out
    assert generated not in logged
    assert [row["action"] for row in rows(postgres_url, "select action from rt.audit order by id")] == [
        "user.create",
        "password.change",
        "password.change",
    ]


def test_what_is_done_is_in_the_audit_log(admin: Admin, postgres_url: str) -> None:
    ok(admin("tenant", "create", "acme"))
    ok(admin("user", "create", "ann@example.com", "--no-password", "--tenant", "acme"))
    ok(admin("token", "create", "ci", "--tenant", "acme"))
    lines = json.loads(ok(admin("audit", "--tenant", "acme", "--json")).out)
    assert [line["action"] for line in lines] == ["token.create", "member.add", "tenant.create"]
    assert all(line["actor"].startswith("operator:") for line in lines)
    assert len(ok(admin("audit", "--tenant", "acme", "--limit", "1")).out.splitlines()) == 2


FAULTS = (
    (("tenant", "create", "Not A Slug"), "", 1, "id: must be 1 to 63 of a-z"),
    (("tenant", "create", "acme"), "", 1, "the name acme is taken"),
    (("tenant", "create", "more", "--owner", "nobody@example.com"), "", 1, "there is no user nobody@example.com"),
    (("tenant", "disable", "nowhere"), "", 1, "there is no tenant nowhere: `runr admin tenant list`"),
    (("user", "create", "no address"), f"{PASSWORD}\n", 1, "email: must be an e-mail address"),
    (("user", "create", "new@example.com"), "short\n", 1, "password: must have at least 12 characters"),
    (("user", "create", "new@example.com"), "", 2, "--generate"),
    (("user", "create", "ANN@example.com", "--no-password"), "", 1, "there is a user ANN@example.com already"),
    (("user", "create", "new@example.com", "--role", "viewer"), "", 2, "--tenant"),
    (("user", "password", "nobody@example.com"), f"{PASSWORD}\n", 1, "there is no user nobody@example.com"),
    (("member", "add", "ann@example.com", "--role", "owner", "--tenant", "acme"), "", 1, "is a member already"),
    (("member", "remove", "bob@example.com", "--tenant", "acme"), "", 1, "is no member of acme"),
    (("token", "create", "ci", "--tenant", "nowhere"), "", 1, "there is no tenant nowhere"),
    (("token", "create", "ci", "--tenant", "acme", "--ability", "root"), "", 1, "abilities[0]: must be one of"),
    (("token", "create", "ci", "--tenant", "acme", "--expires", "soon"), "", 2, "--expires"),
    (("token", "create", "ci", "--tenant", "acme", "--user", "bob@example.com"), "", 1, "is no member of acme"),
    (("token", "revoke", "0" * 26, "--tenant", "acme"), "", 1, "there is no such token"),
)
"""Words, a line for them to read, the exit code and what is said."""


def test_what_goes_wrong_is_said_and_changes_nothing(admin: Admin, postgres_url: str) -> None:
    ok(admin("tenant", "create", "acme"))
    ok(admin("user", "create", "ann@example.com", "--no-password", "--tenant", "acme"))
    ok(admin("user", "create", "bob@example.com", "--no-password"))
    everything = (
        "select (select count(*) from rt.tenant) t, (select count(*) from rt.users) u,"
        " (select count(*) from rt.membership) m, (select count(*) from rt.token) k, (select count(*) from rt.audit) a"
    )
    before = rows(postgres_url, everything)
    for words, line, code, says in FAULTS:
        said = admin(*words, line=line)
        assert (said.code, said.out) == (code, ""), words
        assert said.err.startswith("runr admin: ")
        assert says in said.err
        assert said.err.count("\n") == 1
    assert rows(postgres_url, everything) == before


def test_a_database_that_is_away_or_empty(
    admin: Admin, empty_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_postgres_url)
    assert admin("user", "list").err == "runr admin: this database is not migrated: run `runr migrate` first\n"
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:9/none")
    said = admin("user", "list")
    assert said.code == 1
    assert "127.0.0.1:9" in said.err
    assert "secret" not in said.err
    monkeypatch.setenv("DATABASE_URL", "")
    said = admin("user", "list")
    assert said.code == 2
    assert "no stack of `runr dev`" in said.err
    assert "set DATABASE_URL" in said.err
