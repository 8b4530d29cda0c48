"""`runr workflows pause` and `resume`: whether triggers and the API start runs of a workflow."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.reach import reach_api
from services.cli.runs.meant import naming
from services.core.runtime.service import EXIT_OK


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One workflow after another. Raises Failure at the first that is refused."""
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        for name in given.workflow:
            path = f"/api/projects/{quote(given.project, safe='')}/workflows/{quote(name, safe='')}"
            async with naming(api, given.project, name):
                changed = await api.call("PATCH", path, {"is_active": given.verb == "resume"})
            word = "active" if changed["is_active"] else "paused"
            sys.stdout.write(json.dumps(changed) + "\n" if given.json else f"{word:10}{changed['name']}\n")
    return EXIT_OK
