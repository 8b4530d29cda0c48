"""`runr workflows sync`: the engine asks the function which workflows it serves (engine sections 1 and 12).

With a file it stores that first, as what stands in where the function cannot be reached: a pipeline that deploys calls
it with the `runr.workflows.json` of the code that it deploys.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.archived import archived_lines
from services.cli.json_input import read_json
from services.cli.reach import reach_api
from services.cli.table import counted
from services.core.runtime.service import EXIT_FAILED, EXIT_OK


async def sync(
    environ: Mapping[str, str], *, project: str, file: str | None, as_json: bool, tenant: str | None = None
) -> int:
    """Prints what is declared after the sync; 1 when neither the function nor the file could be declared."""
    text = None if file is None else read_json(Path(file).read_bytes, f"--file {file}")
    base, token = reach_api(environ)
    path = f"/api/projects/{quote(project, safe='')}"
    async with ApiClient(base, token, tenant=tenant) as api:
        stored = None
        if text is not None:
            stored = await api.call("PUT", f"{path}/definitions-file", raw=text)
        synced = await api.call("POST", f"{path}/workflows/sync", {})
    if as_json:
        sys.stdout.write(json.dumps({**synced, "file": stored}) + "\n")
    else:
        _tell(project, synced, stored)
    return EXIT_FAILED if synced["sync"]["status"] == "failed" else EXIT_OK


def _tell(project: str, synced: Mapping[str, Any], stored: Mapping[str, Any] | None) -> None:
    status = synced["sync"]
    lines = []
    if stored is not None:
        lines.append(f"stored    a file of {counted(stored['workflows'], 'workflow')}")
        lines += [f"warning   {warning}" for warning in stored["warnings"]]
    if _is_workers_own(synced):
        lines.append(f"{'workers':10}{project} is served by workers: nothing to sync")
    else:
        lines.append(f"{status['status']:10}{status['message'] or project}")
    lines += [f"warning   {warning}" for warning in status["warnings"] or ()]
    lines += [f"          {workflow['name']}{_paused(workflow)}" for workflow in synced["workflows"]]
    lines += archived_lines(synced["archived"])
    sys.stdout.write("\n".join(lines) + "\n")


def _is_workers_own(synced: Mapping[str, Any]) -> bool:
    """Whether the list is still the one that a worker brought: a function that was asked would have replaced it."""
    workflows = synced["workflows"]
    brought = bool(workflows) and all(workflow["source"] == "worker" for workflow in workflows)
    return brought and synced["sync"]["status"] == "synced"


def _paused(workflow: Mapping[str, Any]) -> str:
    return "" if workflow["is_active"] else " (paused)"
