"""`runr admin`: what the operator does to tenants, users, members and tokens, and what the audit log says."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from services.cli.admin import people, reseal, tenants, tokens
from services.cli.admin.desk import Desk, desk, show
from services.core.runtime.service import EXIT_OK
from services.core.store.audit import INSTALLATION, list_audit

_COMMANDS: Mapping[tuple[str, str], Callable[[Desk, argparse.Namespace], Awaitable[None]]] = {
    ("tenant", "create"): tenants.create,
    ("tenant", "list"): tenants.show_all,
    ("tenant", "disable"): tenants.disable,
    ("tenant", "enable"): tenants.enable,
    ("user", "create"): people.create_user,
    ("user", "list"): people.show_users,
    ("user", "password"): people.set_password,
    ("user", "disable"): people.disable_user,
    ("user", "enable"): people.enable_user,
    ("member", "add"): people.add,
    ("member", "role"): people.change,
    ("member", "remove"): people.remove,
    ("member", "list"): people.show_members,
    ("token", "create"): tokens.create,
    ("token", "list"): tokens.show_all,
    ("token", "revoke"): tokens.revoke,
}


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One command. Raises Failure."""
    async with desk(environ) as place:
        if given.noun == "audit":
            await _audit(place, given)
        elif given.noun == "reseal":
            await reseal.run(place, given, environ)
        else:
            await _COMMANDS[given.noun, given.verb](place, given)
    sys.stdout.flush()
    return EXIT_OK


async def _audit(place: Desk, given: argparse.Namespace) -> None:
    tenant = INSTALLATION if given.tenant is None else await place.tenant(given.tenant)
    rows = await list_audit(place.connection, tenant, before=None, action="", limit=max(1, given.limit))
    show(given, [_line(row) for row in rows], "the log is empty")


def _line(row: Any) -> Mapping[str, Any]:
    at = datetime.fromtimestamp(row.at_ms / 1_000, tz=UTC)
    return {
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "action": row.action,
        "actor": row.actor,
        "subject": row.subject,
    }
