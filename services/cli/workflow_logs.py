"""`runr workflows logs`: the runs of a project as they come and go, each change of a status a line."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import OrderedDict
from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode

from services.cli.api import AWAY, ApiClient, ApiFailure
from services.cli.reach import reach_api
from services.cli.runs.following import AWAY_S
from services.cli.runs.meant import naming, require_workflow
from services.cli.table import one_line
from services.core.runtime.service import EXIT_OK

_PAGE = 200
"""So many of the newest runs are looked at: what is older has ended, or is looked at by its id."""

_LOOK_S = 1.0
_REMEMBERED = 10 * _PAGE


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """Prints the newest runs, oldest first, and with --follow what becomes of them and of those that come."""
    base, token = reach_api(environ)
    asked = [("limit", str(_PAGE)), *([("workflow", given.workflow)] if given.workflow else [])]
    path = f"/api/projects/{quote(given.project, safe='')}/runs?{urlencode(asked)}"
    shown = max(given.limit, 0)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        async with naming(api, given.project, given.workflow or ""):
            newest = (await api.call("GET", path))["data"]
        if not newest and given.workflow:
            await require_workflow(api, given.project, given.workflow)
        told = OrderedDict((each["id"], each["status"]) for each in reversed(newest[shown:]))
        _tell(newest[:shown], told, as_json=given.json)
        while given.follow:
            await asyncio.sleep(_LOOK_S)
            newest = await _look(api, path)
            if len(newest) == _PAGE and not any(each["id"] in told for each in newest):
                sys.stderr.write(f"more than {_PAGE} runs have come meanwhile; the newest are shown\n")
            _tell(newest, told, as_json=given.json)
    return EXIT_OK


async def _look(api: ApiClient, path: str) -> list[Mapping[str, Any]]:
    """The newest runs, through restarts of the gateway."""
    began = monotonic()
    while True:
        try:
            found: list[Mapping[str, Any]] = (await api.call("GET", path))["data"]
            return found
        except ApiFailure as failure:
            if failure.status not in AWAY or monotonic() - began > AWAY_S:
                raise
            await asyncio.sleep(_LOOK_S)


def _tell(runs: list[Mapping[str, Any]], told: OrderedDict[str, str], *, as_json: bool) -> None:
    for each in reversed(runs):
        if told.get(each["id"]) == each["status"]:
            continue
        told[each["id"]] = each["status"]
        sys.stdout.write(json.dumps(each) + "\n" if as_json else _line(each))
    while len(told) > _REMEMBERED:
        told.popitem(last=False)
    sys.stdout.flush()


def _line(found: Mapping[str, Any]) -> str:
    at = found["ended_at"] or found["started_at"] or found["created_at"]
    error = found["error"]
    said = one_line(f": {error['name']}: {error['message']}") if error else ""
    return f"{at}  {found['id']}  {found['workflow']}  {found['status']}{said}\n"
