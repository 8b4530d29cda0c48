"""`runr login`, `logout` and `contexts`: what is kept from one command to the next."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from services.cli.api import ApiClient, api_root
from services.cli.contexts import DEV, Context, Contexts, check_name
from services.cli.failure import Failure
from services.cli.http_url import is_http_url
from services.cli.table import one_line, table
from services.core.runtime.service import EXIT_OK, EXIT_USAGE

_MOST_BYTES = 4_096


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One command."""
    match given.command:
        case "login":
            return await login(environ, given)
        case "logout":
            return await logout(environ, given)
        case _ if given.verb == "use":
            return await use_context(environ, given)
    return await list_contexts(environ, given)


async def login(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Keeps a context, once the API has taken its token."""
    if not is_http_url(given.url):
        raise Failure(f"{given.url}: not a URL; write it with its scheme, as https://runr.example.com", EXIT_USAGE)
    url = api_root(given.url)
    name = check_name(given.name or _host(url))
    contexts = Contexts.of(environ)
    token = _token(given.token_file, url)
    async with ApiClient(url, token, tenant=given.tenant) as api:
        caller = await api.call("GET", "/api/session")
    contexts.with_context(name, Context(url, token, given.tenant, given.project)).save()
    if given.json:
        sys.stdout.write(json.dumps({"context": name, "url": url, **caller}) + "\n")
    else:
        who = one_line(caller["email"] or "a token of the installation")
        sys.stdout.write(f"{name} is the current context: {url} as {who}, {caller['role']} of {caller['tenant']}\n")
    return EXIT_OK


async def logout(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Forgets a context."""
    contexts = Contexts.of(environ)
    name = given.name or contexts.current
    if name is None or name == DEV:
        raise Failure("no context is current: name one of `runr contexts list`", EXIT_USAGE)
    contexts.without(name).save()
    if given.json:
        sys.stdout.write(json.dumps({"context": name}) + "\n")
    else:
        sys.stdout.write(f"{name} is forgotten; its token works on until it is revoked (`runr tokens revoke`)\n")
    return EXIT_OK


async def list_contexts(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Prints all contexts, and no token."""
    contexts = Contexts.of(environ)
    rows = [_shown(name, each, contexts) for name, each in sorted(contexts.named.items())]
    if given.json:
        sys.stdout.write(json.dumps({"data": rows}) + "\n")
    elif not rows:
        sys.stdout.write("no contexts: `runr login URL` keeps one\n")
    else:
        cells = [
            ("*" if row["current"] else "", row["name"], row["url"], row["tenant"] or "-", row["project"] or "-")
            for row in rows
        ]
        sys.stdout.write(table(("", "CONTEXT", "URL", "TENANT", "PROJECT"), cells))
    return EXIT_OK


async def use_context(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Makes another context the current one."""
    contexts = Contexts.of(environ).using(given.name)
    contexts.save()
    if given.json:
        sys.stdout.write(json.dumps({"current": given.name}) + "\n")
    else:
        sys.stdout.write(f"{given.name} is the current context\n")
    if environ.get("RUNR_API_URL") or environ.get("RUNR_CONTEXT"):
        sys.stderr.write("RUNR_API_URL or RUNR_CONTEXT is set, and is what commands use\n")
    return EXIT_OK


def _shown(name: str, context: Context, contexts: Contexts) -> dict[str, Any]:
    return {
        "name": name,
        "url": context.url,
        "tenant": context.tenant,
        "project": context.project,
        "current": name == contexts.current,
    }


def _host(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return host.replace(":", "-")


def _token(file: str | None, url: str) -> str:
    """The token, from where it is not shown to others: never from the command line."""
    if file is None and sys.stdin.isatty():
        try:
            token = getpass.getpass(f"Token for {url}: ")
        except EOFError:
            token = ""
    else:
        token = _read(file or "-")
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Failure("a token is needed, one word: `runr tokens create` makes one", EXIT_USAGE)
    return token


def _read(file: str) -> str:
    try:
        if file == "-":
            return sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8", "replace")
        with Path(file).open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise Failure(f"--token-file {file}: {error.strerror}", EXIT_USAGE) from None
