"""The REST rows of tokens, members, roles, tenants, sessions and the audit log, before the real service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import Morsel, SimpleCookie
from typing import Any

import pytest

from services.core.domain.role import ROLES
from services.core.runtime.sealing import Sealer
from services.core.runtime.settings import SessionSettings
from services.core.store.database import Database
from services.gateway.mcp.origin import origin_of
from services.gateway.session import Cookies
from tests.support.access_stage import PASSWORD, Stage, access_stage
from tests.support.http_gateway import Reply
from tests.support.tenancy import BOOTSTRAP_TOKEN, database, sealer, tenant
from tests.support.waiting import until

__all__ = ["database", "sealer", "tenant"]

EMAIL = "ann@example.com"
SESSION, CSRF = "__Host-runr_session", "__Host-runr_csrf"
NO_ID = "0" * 26


@pytest.fixture
async def stage(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Stage]:
    async with access_stage(database, sealer, settings=SessionSettings(login_attempts=3)) as made:
        yield made


async def call(stage: Stage, method: str, path: str, body: Any = None, **options: Any) -> Reply:
    options.setdefault("token", BOOTSTRAP_TOKEN)
    return await stage.http.call(method, f"/api{path}", body=body, **options)


async def tokens(stage: Stage) -> Any:
    """All tokens of the default tenant."""
    return (await call(stage, "GET", "/tokens")).json["data"]


def cookies_of(reply: Reply) -> dict[str, Morsel[str]]:
    """The cookies that an answer sets."""
    found: SimpleCookie = SimpleCookie()
    for line in reply.headers.getall("Set-Cookie", ()):  # type: ignore[attr-defined]
        found.load(line)
    return dict(found)


class Browser:
    """Keeps the cookies, and shows the token with its writes unless it is told not to."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.jar: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None, *, csrf: str | None = "", **more: str) -> Reply:
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.jar.items()), **more}
        shown = self.jar.get(CSRF, "") if csrf == "" else csrf
        if shown:
            headers["X-CSRF-Token"] = shown
        reply = await call(self.stage, method, path, body, token=None, headers=headers)
        for name, cookie in cookies_of(reply).items():
            self.jar[name] = cookie.value
            if cookie["max-age"] == "0":
                del self.jar[name]
        return reply


@pytest.fixture
async def browser(stage: Stage, tenant: int) -> Browser:
    """Of a developer who has signed in."""
    await stage.join(tenant, await stage.user(EMAIL), "developer")
    made = Browser(stage)
    assert (await made.call("POST", "/session", {"email": EMAIL, "password": PASSWORD})).status == 201
    return made


async def test_a_token_is_made_shown_once_and_taken_back(stage: Stage) -> None:
    body = {"name": "ci", "abilities": ["workflows.view"], "expires_at": "2999-01-01T00:00:00Z"}
    made = await call(stage, "POST", "/tokens", body)
    assert (made.status, made.headers["Cache-Control"]) == (201, "no-store")
    secret = made.json["token"]
    assert secret.startswith("rt_")
    assert set(made.json) == {"id", "name", "abilities", "email", "created_at", "expires_at", "last_used_at", "token"}
    assert (made.json["email"], made.json["expires_at"]) == (None, "2999-01-01T00:00:00.000Z")
    assert (await call(stage, "GET", "/session", token=secret)).json["abilities"] == ["workflows.view"]
    listed = await call(stage, "GET", "/tokens")
    assert secret.encode() not in listed.body
    assert [token["name"] for token in listed.json["data"]] == ["bootstrap", "ci"]
    page = (await call(stage, "GET", "/tokens?limit=1")).json
    rest = (await call(stage, "GET", f"/tokens?limit=1&cursor={page['next_cursor']}")).json
    assert [token["name"] for token in (*page["data"], *rest["data"])] == ["bootstrap", "ci"]
    assert (await call(stage, "DELETE", f"/tokens/{made.json['id']}")).status == 204
    (await call(stage, "GET", "/session", token=secret)).problem(401)
    (await call(stage, "DELETE", f"/tokens/{made.json['id']}")).problem(404)


async def test_the_last_use_of_a_token_is_written_down(stage: Stage) -> None:
    secret = (await call(stage, "POST", "/tokens", {"name": "ci"})).json["token"]
    assert (await call(stage, "GET", "/session", token=secret)).status == 200

    async def last_used() -> object:
        return {token["name"]: token["last_used_at"] for token in await tokens(stage)}["ci"]

    await until(last_used)


async def test_a_bad_token_is_refused_with_every_fault(stage: Stage, tenant: int) -> None:
    bad = {"name": "", "abilities": "all", "expires_at": "soon", "more": 1}
    assert set((await call(stage, "POST", "/tokens", bad)).faults()) == {"name", "abilities", "expires_at", "more"}
    faults = (await call(stage, "POST", "/tokens", {"name": "x", "abilities": ["root"]})).faults()
    assert "workflows.view" in faults["abilities[0]"]
    assert (await call(stage, "POST", "/tokens", {"name": "x", "expires_at": "2001-01-01T00:00:00Z"})).faults() == {
        "expires_at": "must be in the future"
    }
    (await call(stage, "POST", "/tokens", {})).problem(422)
    less = (await call(stage, "POST", "/tokens", {"name": "m", "abilities": ["workflows.manage"]})).json["token"]
    more = {"name": "x", "abilities": ["workflows.run"]}
    assert "more" in (await call(stage, "POST", "/tokens", more, token=less)).problem(403)["detail"]


async def test_members_come_change_and_go(stage: Stage) -> None:
    for email in (EMAIL, "bob@example.com"):
        await stage.user(email)
    made = await call(stage, "POST", "/members", {"email": EMAIL, "role": "owner"})
    assert made.status == 201
    assert set(made.json) == {"id", "email", "role", "created_at"}
    second = (await call(stage, "POST", "/members", {"email": "bob@example.com", "role": "viewer"})).json
    listed = (await call(stage, "GET", "/members")).json["data"]
    assert [(member["email"], member["role"]) for member in listed] == [(EMAIL, "owner"), ("bob@example.com", "viewer")]
    changed = await call(stage, "PATCH", f"/members/{second['id']}", {"role": "developer"})
    assert changed.json == second | {"role": "developer"}
    (await call(stage, "POST", "/members", {"email": EMAIL, "role": "viewer"})).problem(409)
    (await call(stage, "PATCH", f"/members/{made.json['id']}", {"role": "viewer"})).problem(409)
    (await call(stage, "DELETE", f"/members/{made.json['id']}")).problem(409)
    assert set((await call(stage, "PATCH", f"/members/{second['id']}", {"role": "king"})).faults()) == {"role"}
    assert set((await call(stage, "POST", "/members", {"role": "viewer"})).faults()) == {"email"}
    assert (await call(stage, "DELETE", f"/members/{second['id']}")).status == 204
    for method, body in (("PATCH", {"role": "viewer"}), ("DELETE", None)):
        (await call(stage, method, f"/members/{second['id']}", body)).problem(404)


async def test_the_roles_are_listed(stage: Stage) -> None:
    told = (await call(stage, "GET", "/roles")).json
    assert {role["name"]: tuple(role["abilities"]) for role in told["data"]} == dict(ROLES)


async def test_a_caller_chooses_among_the_callers_tenants(stage: Stage, tenant: int) -> None:
    user = await stage.user(EMAIL)
    await stage.join(tenant, user, "developer")
    token = await stage.token(tenant, user, "developer")
    made = await call(stage, "POST", "/tenants", {"id": "acme", "name": "Acme"}, token=token)
    assert (made.status, made.json["id"], made.json["role"]) == (201, "acme", "owner")
    (await call(stage, "POST", "/tenants", {"id": "acme"}, token=token)).problem(409)
    assert set((await call(stage, "POST", "/tenants", {"id": "A b"}, token=token)).faults()) == {"id"}
    (await call(stage, "POST", "/tenants", {"id": "other"})).problem(403)
    listed = (await call(stage, "GET", "/tenants", token=token)).json["data"]
    assert [(each["id"], each["role"]) for each in listed] == [("acme", "owner"), ("default", "developer")]
    chosen = await call(stage, "GET", "/session", token=token, headers={"X-Tenant-ID": "acme"})
    assert (chosen.json["tenant"], chosen.json["role"]) == ("acme", "owner")
    await stage.tenant("closed")
    problems = [
        (await call(stage, "GET", "/session", token=token, headers={"X-Tenant-ID": name})).problem(403)["detail"]
        for name in ("closed", "nowhere")
    ]
    assert problems[0].replace("closed", "") == problems[1].replace("nowhere", "")


async def test_what_belongs_to_another_tenant_does_not_exist(stage: Stage, tenant: int) -> None:
    other = await stage.tenant("acme")
    owner = await stage.member(other, "them@example.com", "owner")
    mine = (await call(stage, "GET", "/tokens")).json["data"][0]["id"]
    member = await stage.join(tenant, await stage.user(EMAIL), "viewer")
    for method, path, body in (
        ("DELETE", f"/tokens/{mine}", None),
        ("PATCH", f"/members/{member}", {"role": "viewer"}),
        ("DELETE", f"/members/{member}", None),
    ):
        theirs = (await call(stage, method, path, body, token=owner)).problem(404)
        nobodys = (await call(stage, method, f"{path.rpartition('/')[0]}/{NO_ID}", body, token=owner)).problem(404)
        assert theirs["detail"] == nobodys["detail"]
    assert [token["email"] for token in (await call(stage, "GET", "/tokens", token=owner)).json["data"]] == [
        "them@example.com"
    ]
    assert EMAIL.encode() not in (await call(stage, "GET", "/members", token=owner)).body


async def test_the_audit_log_is_read_by_managers(stage: Stage, tenant: int) -> None:
    viewer = await stage.member(tenant, "view@example.com", "viewer")
    (await call(stage, "POST", "/members", {"email": EMAIL, "role": "viewer"}, token=viewer)).problem(403)
    (await call(stage, "GET", "/audit", token=viewer)).problem(403)
    lines = (await call(stage, "GET", "/audit?action=permission.denied")).json["data"]
    assert [line["subject"] for line in lines] == ["ListAuditEntries", "AddMember"]
    assert set(lines[0]) == {"id", "at", "actor", "action", "subject"}
    (await call(stage, "GET", "/audit?cursor=x")).problem(422)


async def test_signing_in_sets_a_cookie_that_no_script_reads(stage: Stage, browser: Browser) -> None:
    reply = await call(stage, "POST", "/session", {"email": EMAIL, "password": PASSWORD}, token=None)
    cookies = cookies_of(reply)
    assert set(cookies) == {SESSION, CSRF}
    assert reply.headers["Cache-Control"] == "no-store"
    assert cookies[SESSION].value.encode() not in reply.body
    for cookie, hidden in ((cookies[SESSION], True), (cookies[CSRF], "")):
        assert (cookie["httponly"], cookie["secure"], cookie["samesite"], cookie["path"], cookie["domain"]) == (
            hidden,
            True,
            "Strict",
            "/",
            "",
        )
        assert 0 < int(cookie["max-age"]) <= 12 * 3_600
    assert reply.json["csrf_token"] == cookies[CSRF].value
    told = (await browser.call("GET", "/session")).json
    assert (told["email"], told["session"], told["role"], told["tenant"]) == (EMAIL, True, "developer", "default")


async def test_a_write_with_a_cookie_shows_the_token(browser: Browser) -> None:
    body = {"name": "mine"}
    for csrf in (None, "x", browser.jar[SESSION], browser.jar[CSRF][:-1]):
        refused = await browser.call("POST", "/tokens", body, csrf=csrf)
        assert refused.problem(403)["type"].endswith("/csrf-token")
    for site in ("cross-site", "same-site"):
        refused = await browser.call("POST", "/tokens", body, **{"Sec-Fetch-Site": site})
        assert refused.problem(403)["type"].endswith("/other-site")
    assert (await browser.call("GET", "/tokens", csrf=None)).status == 200
    made = await browser.call("POST", "/tokens", body, **{"Sec-Fetch-Site": "same-origin"})
    assert made.json["email"] == EMAIL


async def test_a_page_of_another_site_signs_nobody_in(stage: Stage, browser: Browser) -> None:
    credentials = {"email": EMAIL, "password": PASSWORD}
    headers = {"Sec-Fetch-Site": "cross-site"}
    reply = await call(stage, "POST", "/session", credentials, token=None, headers=headers)
    assert reply.problem(403)["type"].endswith("/other-site")
    assert not cookies_of(reply)


OTHER_PAGES = (
    "https://evil.example",
    "https://127.0.0.1.evil.example",
    "http://127.0.0.1",
    "http://127.0.0.1:1",
    "null",
    "",
    "file://",
)


async def test_a_browser_that_says_only_where_its_page_is_from_is_believed(stage: Stage, browser: Browser) -> None:
    credentials = {"email": EMAIL, "password": PASSWORD}
    for origin in OTHER_PAGES:
        reply = await call(stage, "POST", "/session", credentials, token=None, headers={"Origin": origin})
        assert reply.problem(403)["type"].endswith("/other-site")
        assert not cookies_of(reply)
        for method, path in (("POST", "/tokens"), ("POST", "/session/rotate"), ("DELETE", "/session")):
            refused = await browser.call(method, path, {"name": "theirs"}, Origin=origin)
            assert refused.problem(403)["type"].endswith("/other-site")
        assert (await browser.call("GET", "/session", Origin=origin)).status == 200
    own = f"http://{stage.http.address}"
    assert (await browser.call("POST", "/tokens", {"name": "mine"}, Origin=own)).status == 201
    signed_in = await call(stage, "POST", "/session", credentials, token=None, headers={"Origin": own})
    assert signed_in.status == 201
    # What comes with a token comes from no cookie, and from whatever page.
    page = {"Origin": "https://tools.example"}
    assert (await call(stage, "POST", "/tokens", {"name": "page"}, headers=page)).status == 201


@pytest.mark.parametrize(
    ("cookies", "page", "own"),
    [
        (Cookies(), "https://runr.example", True),
        (Cookies(), "https://RUNR.example:443", True),
        (Cookies(), "https://runr.example:8443", False),
        (Cookies(), "https://www.runr.example", False),
        (Cookies(), "http://runr.example", False),
        (Cookies(secure=False), "http://runr.example", True),
        (Cookies(site=("https", "api.example", 443)), "https://api.example", True),
        (Cookies(site=("https", "api.example", 443)), "http://api.example", False),
        (Cookies(site=("https", "api.example", 443)), "https://runr.example", True),
    ],
)
def test_pages_of_the_site_are_those_of_its_host_or_of_the_public_url(cookies: Cookies, page: str, own: bool) -> None:
    origin = origin_of(page)
    assert origin is not None
    assert cookies.is_site(origin, "runr.example") == own


async def test_a_header_counts_before_the_cookie(stage: Stage, browser: Browser) -> None:
    told = await browser.call("GET", "/session", Authorization=f"Bearer {BOOTSTRAP_TOKEN}")
    assert told.json["session"] is False
    (await browser.call("GET", "/session", Authorization="Bearer rt_wrong")).problem(401)


async def test_a_cookie_of_the_plain_name_is_none(browser: Browser) -> None:
    browser.jar = {"runr_session": browser.jar[SESSION]}
    (await browser.call("GET", "/session")).problem(401)


async def test_rotating_and_signing_out(stage: Stage, browser: Browser) -> None:
    before = dict(browser.jar)
    assert (await browser.call("POST", "/session/rotate", {})).status == 200
    assert before[SESSION] != browser.jar[SESSION]
    assert before[CSRF] != browser.jar[CSRF]
    (await browser.call("POST", "/session/rotate", {})).problem(409)
    assert (await browser.call("GET", "/session")).status == 200
    after = dict(browser.jar)
    assert (await browser.call("DELETE", "/session")).status == 204
    assert browser.jar == {}
    for jar in (before, after):
        browser.jar = jar
        (await browser.call("GET", "/session")).problem(401)


async def test_a_password_is_changed_by_its_user(stage: Stage, browser: Browser) -> None:
    wrong = {"current_password": "wrong", "new_password": "another long password"}
    assert set((await browser.call("PUT", "/session/password", wrong)).faults()) == {"current_password"}
    short = {"current_password": PASSWORD, "new_password": "short"}
    assert set((await browser.call("PUT", "/session/password", short)).faults()) == {"new_password"}
    right = {"current_password": PASSWORD, "new_password": "another long password"}
    (await call(stage, "PUT", "/session/password", right)).problem(403)
    assert (await browser.call("PUT", "/session/password", right)).status == 204
    old = await call(stage, "POST", "/session", {"email": EMAIL, "password": PASSWORD}, token=None)
    assert old.problem(401)["detail"] == "e-mail or password is wrong"


@pytest.mark.parametrize("wrong", [[PASSWORD], {"a": PASSWORD}, f"{PASSWORD}\0", f"{PASSWORD}\ud800", PASSWORD * 90])
async def test_a_fault_of_a_password_does_not_tell_it(stage: Stage, browser: Browser, wrong: Any) -> None:
    for name in ("current_password", "new_password"):
        reply = await browser.call(
            "PUT", "/session/password", {"current_password": "a", "new_password": "a", name: wrong}
        )
        assert set(reply.faults()) == {name}
        assert PASSWORD.encode() not in reply.body
    reply = await call(stage, "POST", "/session", {"email": EMAIL, "password": wrong}, token=None)
    assert set(reply.faults()) == {"password"}
    assert PASSWORD.encode() not in reply.body


async def test_attempts_are_limited(stage: Stage, tenant: int) -> None:
    body = {"email": "nobody@example.com", "password": "wrong"}
    for _ in range(3):
        (await call(stage, "POST", "/session", body, token=None)).problem(401)
    reply = await call(stage, "POST", "/session", body, token=None)
    reply.problem(429)
    assert 0 < int(reply.headers["Retry-After"]) <= 900
    assert set((await call(stage, "POST", "/session", {"email": "x", "password": "y"}, token=None)).faults()) == {
        "email"
    }
