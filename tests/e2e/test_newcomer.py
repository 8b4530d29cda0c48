"""A new user's first day: made by the operator, signed in by a browser, with a tenant, a project and a token."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from services.core.runtime.python_child import python_command, python_environ
from tests.support.http_gateway import Reply
from tests.support.rest import Rest
from tests.support.stack import Stack

EMAIL, PASSWORD = "newcomer@example.com", "correct-horse-battery"
LIST = {"workflows": [{"name": "greet", "triggers": [{"event": "hello"}]}]}


def runr_admin(stack: Stack, *words: str, line: str = "") -> str:
    """What `runr admin` prints, as its operator starts it."""
    done = subprocess.run(
        python_command("services.cli.main", "admin", *words),
        env={**os.environ, **python_environ({"PATH": "/usr/bin", "DATABASE_URL": stack.database_url})},
        input=line,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Browser:
    """A browser that keeps cookies, and a page in it that shows the token against forged writes."""

    def __init__(self, client: Rest) -> None:
        self._client = client
        self.cookies: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None, *, tenant: str | None = None) -> Reply:
        """One request of the page."""
        headers = {"Sec-Fetch-Site": "same-origin"}
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            headers["X-CSRF-Token"] = self.cookies["__Host-runr_csrf"]
        if tenant is not None:
            headers["X-Tenant-ID"] = tenant
        reply = await self._client.call(method, path, body, token=None, headers=headers)
        answered: Any = reply.headers
        for line in answered.getall("Set-Cookie", ()):
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return reply

    async def ok(self, method: str, path: str, body: Any = None, *, tenant: str | None = None) -> Any:
        """The JSON of an answer that must be a success."""
        reply = await self.call(method, path, body, tenant=tenant)
        assert reply.status < 300, (method, path, reply.status, reply.body)
        return reply.json if reply.body else None


async def test_a_newcomer_gets_to_a_run_of_a_tenant_of_their_own(stack: Stack) -> None:
    await stack.revive()
    runr_admin(stack, "user", "create", EMAIL, "--tenant", "default", "--role", "developer", line=f"{PASSWORD}\n")
    async with stack.client() as client:
        browser = Browser(client)
        (await browser.call("GET", "/session")).problem(401)
        await browser.ok("POST", "/session", {"email": EMAIL, "password": PASSWORD})
        assert (await browser.ok("GET", "/session"))["tenant"] == "default"
        await browser.ok("POST", "/tenants", {"id": "newcomers"})
        assert [each["id"] for each in (await browser.ok("GET", "/tenants"))["data"]] == ["default", "newcomers"]
        await browser.ok("POST", "/projects", {"slug": "first"}, tenant="newcomers")
        await browser.ok("PUT", "/projects/first/workflows", LIST, tenant="newcomers")
        wanted = {"name": "sender", "abilities": ["events.send"]}
        token = (await browser.ok("POST", "/tokens", wanted, tenant="newcomers"))["token"]

        sent = await client.call("POST", "/events", {"name": "hello"}, token=token)
        (run,) = sent.json["events"][0]["runs"]
        (await client.call("GET", f"/runs/{run}", token=token)).problem(403)
        assert (await browser.ok("GET", f"/runs/{run}", tenant="newcomers"))["event"]["name"] == "hello"
        (await browser.call("GET", f"/runs/{run}")).problem(404)
        log = (await browser.ok("GET", "/audit", tenant="newcomers"))["data"]
        assert [(line["action"], line["subject"].rpartition(" ")[2]) for line in log] == [
            ("permission.denied", "GetRun"),
            ("token.create", "sender"),
            ("tenant.create", "newcomers"),
        ]
        assert all(line["actor"].startswith(EMAIL) for line in log)
        await browser.ok("DELETE", "/session")
        (await browser.call("GET", "/session")).problem(401)
        assert (await client.call("POST", "/events", {"name": "hello"}, token=token)).status == 200
        listed = json.loads(runr_admin(stack, "user", "list", "--json"))
    (user,) = [each for each in listed if each["email"] == EMAIL]
    assert user["memberships"] == "default:developer newcomers:owner"
