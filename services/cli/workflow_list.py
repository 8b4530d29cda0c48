"""`runr workflows list`: the workflows of a project and what starts them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.reach import reach_api
from services.cli.runs.paging import listed, most
from services.cli.table import table
from services.core.runtime.service import EXIT_OK


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Prints the list."""
    base, token = reach_api(environ)
    path = f"/api/projects/{quote(given.project, safe='')}/workflows"
    asked = [("archived", "1")] if given.archived else []
    async with ApiClient(base, token, tenant=given.tenant) as api:
        found = await listed(api, path, asked, most(given))
    if given.json:
        sys.stdout.write(found.to_json())
    elif not found.rows:
        sys.stdout.write(f"{given.project} has no workflows: `runr workflows sync` asks its function for them\n")
    else:
        sys.stdout.write(table(("WORKFLOW", "STATE", "SOURCE", "RETRIES", "STARTED BY"), map(_row, found.rows)))
        found.tell_more()
    return EXIT_OK


def _row(workflow: Mapping[str, Any]) -> Sequence[str]:
    state = "archived" if workflow["archived_at"] else "active" if workflow["is_active"] else "paused"
    triggers = ", ".join(map(_trigger, workflow.get("triggers") or ()))
    return workflow["name"], state, workflow["source"], str(workflow.get("retries", "")), triggers or "the API alone"


def _trigger(trigger: Mapping[str, Any]) -> str:
    if "cron" in trigger:
        return f"cron {trigger['cron']}"
    return f"{trigger.get('event')}{f' if {condition}' if (condition := trigger.get('if')) else ''}"
