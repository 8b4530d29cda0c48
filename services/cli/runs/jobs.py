"""Bulk jobs on the command line: what a filter finds is cancelled, retried or replayed in the background."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from time import monotonic
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient
from services.cli.failure import Failure
from services.cli.runs.filtered import bulk_filter
from services.cli.runs.meant import naming
from services.cli.table import counted, one_line
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE

_POLL_S = 0.5
_OF_IDS = ("keep_children", "from_step", "data")


async def start(api: ApiClient, given: argparse.Namespace) -> int:
    """Asks for a job, or with --dry-run what it would do."""
    for name in _OF_IDS:
        if getattr(given, name, None):
            raise Failure(f"--{name.replace('_', '-')} is for runs that are named by their ids", EXIT_USAGE)
    body = {"action": given.verb, "filter": bulk_filter(given), "dry_run": given.dry_run}
    async with naming(api, given.project, given.filter_workflow or ""):
        asked = await api.call("POST", f"/api/projects/{quote(given.project, safe='')}/runs/bulk", body)
    if given.dry_run:
        sys.stdout.write(json.dumps(asked) + "\n" if given.json else _would(asked))
        return EXIT_OK
    if given.wait:
        if not given.json:
            sys.stdout.write(f"{'job':10}{asked['id']}  {_what(asked)}\n")
            sys.stdout.flush()
        asked = await _end(api, asked, given.timeout)
    return _tell(asked, given)


async def job(api: ApiClient, given: argparse.Namespace) -> int:
    """A job as it is, or as it has ended."""
    path = f"/api/bulk-jobs/{quote(given.job, safe='')}"
    found = await (api.call("POST", f"{path}/stop", {}) if given.stop else api.call("GET", path))
    if given.wait:
        found = await _end(api, found, given.timeout)
    return _tell(found, given)


async def _end(api: ApiClient, found: Mapping[str, Any], timeout_s: float | None) -> Mapping[str, Any]:
    began = monotonic()
    while found["ended_at"] is None:
        if timeout_s is not None and monotonic() - began > timeout_s:
            raise Failure(f"job {found['id']} has not ended after {timeout_s:g} s and goes on: {_progress(found)}")
        await asyncio.sleep(_POLL_S)
        found = await api.call("GET", f"/api/bulk-jobs/{quote(found['id'], safe='')}")
    return found


def _tell(found: Mapping[str, Any], given: argparse.Namespace) -> int:
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        lines = [f"{found['status']:10}{found['id']}  {_what(found)}: {_progress(found)}"]
        lines += [f"failed    {fault['run_id']}  {_error(fault['error'])}" for fault in found["faults"]]
        if found["error"]:
            lines.append(f"error     {_error(found['error'])}")
        if found["ended_at"] is None:
            lines.append(f"          it works in the background: `runr runs job {found['id']} --wait`")
        sys.stdout.write("\n".join(lines) + "\n")
    bad = found["failed"] or found["error"] or (given.wait and found["status"] != "completed")
    return EXIT_FAILED if bad else EXIT_OK


def _would(asked: Mapping[str, Any]) -> str:
    lines = [f"would {_what(asked)}", *(f"          {run_id}" for run_id in asked["sample"])]
    if len(asked["sample"]) < asked["total"]:
        lines.append("          …")
    return "\n".join(lines) + "\n"


def _what(found: Mapping[str, Any]) -> str:
    at_least = "at least " if found["total_is_partial"] else ""
    return f"{found['action']} {at_least}{counted(found['total'], 'run')} of {found['project']}"


def _progress(found: Mapping[str, Any]) -> str:
    return f"{found['succeeded']} done, {found['skipped']} skipped, {found['failed']} failed"


def _error(error: Mapping[str, Any] | None) -> str:
    return "" if error is None else one_line(f"{error['name']}: {error['message']}")
