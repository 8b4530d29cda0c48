"""`runr admin tenant`."""

from __future__ import annotations

import argparse

from services.cli.admin.desk import Desk, show, tell
from services.cli.failure import Failure
from services.core.domain.role import OWNER
from services.core.engine.members import add_member, new_tenant
from services.core.store.access import write_audit
from services.core.store.members import disable_tenant, list_tenants

_MOST = 100_000


async def create(place: Desk, given: argparse.Namespace) -> None:
    """Make a tenant, and its owner."""
    tenant = await new_tenant(place.connection, given.slug, given.name)
    await write_audit(place.connection, tenant=tenant, actor=place.actor, action="tenant.create", subject=given.slug)
    if given.owner is not None:
        caller = await place.caller(given.slug)
        await add_member(place.connection, caller, place.ids, email=given.owner, role=OWNER)
    owner = f", owned by {given.owner}" if given.owner else ""
    more = "" if given.owner else f"\nNext: runr admin user create EMAIL --tenant {given.slug}"
    tell(given, {"id": given.slug, "owner": given.owner}, f"made the tenant {given.slug}{owner}{more}")


async def show_all(place: Desk, given: argparse.Namespace) -> None:
    """All tenants."""
    rows = await list_tenants(place.connection, after=None, limit=_MOST)
    show(given, [{"tenant": row.slug, "name": row.name, "disabled": row.disabled} for row in rows], "no tenants")


async def disable(place: Desk, given: argparse.Namespace) -> None:
    """Keep everybody out."""
    await _set(place, given.slug, disabled=True)
    told = {"id": given.slug, "disabled": True}
    tell(given, told, f"{given.slug} is closed to everybody, within 5 s; its runs go on")


async def enable(place: Desk, given: argparse.Namespace) -> None:
    """Let everybody in again."""
    await _set(place, given.slug, disabled=False)
    tell(given, {"id": given.slug, "disabled": False}, f"{given.slug} is open again")


async def _set(place: Desk, slug: str, *, disabled: bool) -> None:
    tenant = await disable_tenant(place.connection, slug, disabled=disabled)
    if tenant is None:
        raise Failure(f"there is no tenant {slug}: `runr admin tenant list` names them all")
    action = "tenant.disable" if disabled else "tenant.enable"
    await write_audit(place.connection, tenant=tenant, actor=place.actor, action=action, subject=slug)
