"""`runr workflows declare`: the project's whole list of workflows, from a file (engine section 1).

For pipelines and tools that keep infrastructure as code: the same file declares the same list, however often. What it
does not name any more is archived; what is paused stays so. A later sync asks the function again, if the project has
one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.archived import archived_warnings
from services.cli.reach import reach_api
from services.cli.runs.payload import read_payload
from services.cli.table import counted, one_line
from services.core.runtime.service import EXIT_OK


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Prints what is declared then. Raises Failure for a list that is refused, with every fault of it."""
    text = read_payload("-" if given.file == "-" else f"@{given.file}", "FILE")
    body = text if text.lstrip().startswith(b"{") else b'{"workflows":' + text + b"}"
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        declared = await api.call("PUT", f"/api/projects/{quote(given.project, safe='')}/workflows", raw=body)
    if given.json:
        sys.stdout.write(json.dumps(declared) + "\n")
        return EXIT_OK
    number = sum(each["archived_at"] is None for each in declared["data"])
    lines = [f"declared  {counted(number, 'workflow')} of {given.project}"]
    lines += [f"          {one_line(each['name'])}{_state(each)}" for each in declared["data"]]
    lines += archived_warnings(declared["archived"])
    sys.stdout.write("\n".join(lines) + "\n")
    return EXIT_OK


def _state(workflow: Mapping[str, Any]) -> str:
    if workflow["archived_at"] is not None:
        return " (archived)"
    return "" if workflow["is_active"] else " (paused)"
