"""`runr tokens`: makes, lists and takes back API tokens (engine section 4)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.reach import reach_api
from services.cli.runs.paging import listed, most
from services.cli.table import one_line, table
from services.core.domain.duration import parse_duration, parse_time
from services.core.domain.errors import DomainError
from services.core.runtime.clock import SystemClock
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE

_PATH = "/api/tokens"
_WHEN = "a duration, as 90d, or a time, as 2027-01-01T00:00:00Z"


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One verb; 1 where a token could not be taken back."""
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        match given.verb:
            case "create":
                return await _create(api, given)
            case "list":
                return await _list(api, given)
            case _:
                return await _revoke(api, given)


async def _create(api: ApiClient, given: argparse.Namespace) -> int:
    body: dict[str, Any] = {"name": given.name}
    if given.ability:
        body["abilities"] = given.ability
    if given.expires is not None:
        body["expires_at"] = expiry(given.expires, SystemClock().unix_ms())
    made = await api.call("POST", _PATH, body)
    if given.json:
        sys.stdout.write(json.dumps(made) + "\n")
        return EXIT_OK
    until = f"until {made['expires_at']}" if made["expires_at"] else "until it is revoked"
    sys.stderr.write(f"{'created':10}{made['id']}  {one_line(made['name'])}: {', '.join(made['abilities'])}, {until}\n")
    sys.stderr.flush()
    # Alone on stdout, for `TOKEN=$(runr tokens create …)`.
    sys.stdout.write(f"{made['token']}\n")
    return EXIT_OK


async def _list(api: ApiClient, given: argparse.Namespace) -> int:
    found = await listed(api, _PATH, (), most(given))
    if given.json:
        sys.stdout.write(found.to_json())
    elif not found.rows:
        sys.stdout.write("no tokens but that of the installation: `runr tokens create NAME` makes one\n")
    else:
        head = ("TOKEN", "NAME", "USER", "CREATED", "EXPIRES", "LAST USED", "ABILITIES")
        sys.stdout.write(table(head, map(_row, found.rows)))
        found.tell_more()
    return EXIT_OK


async def _revoke(api: ApiClient, given: argparse.Namespace) -> int:
    """Each by itself: one that is refused does not hold up the others."""
    refused = False
    for token_id in given.token:
        try:
            await api.call("DELETE", f"{_PATH}/{quote(token_id, safe='')}")
        except ApiFailure as failure:
            if failure.status in (0, 401):
                raise
            sys.stderr.write(f"runr tokens: {failure}\n")
            refused = True
            continue
        sys.stdout.write(json.dumps({"id": token_id}) + "\n" if given.json else f"{'revoked':10}{token_id}\n")
    return EXIT_FAILED if refused else EXIT_OK


def expiry(given: str, now_ms: int) -> str:
    """The time that `--expires` means, as the API takes it. Raises Failure."""
    try:
        at_ms = now_ms + parse_duration(given)
    except (DomainError, ValueError):
        try:
            at_ms = parse_time(given)
        except (DomainError, ValueError):
            raise Failure(f"--expires {given}: {_WHEN}", EXIT_USAGE) from None
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):
        raise Failure(f"--expires {given}: too far away", EXIT_USAGE) from None


def _row(token: Mapping[str, Any]) -> Sequence[str]:
    return (
        token["id"],
        token["name"],
        token["email"] or "-",
        token["created_at"] or "-",
        token["expires_at"] or "never",
        token["last_used_at"] or "never",
        ", ".join(token["abilities"]),
    )
