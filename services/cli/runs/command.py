"""`runr runs`: looks at runs, starts them, cancels them, lets them go on (engine section 12)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.reach import reach_api
from services.cli.runs import jobs
from services.cli.runs.filtered import is_bulk, query
from services.cli.runs.logs import logs
from services.cli.runs.meant import naming, require_workflow
from services.cli.runs.paging import listed, most
from services.cli.runs.payload import body_with, read_payload
from services.cli.runs.show import COLUMNS, run_row, run_shown
from services.cli.runs.waiting import Ended, Waiting
from services.cli.table import table
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One verb; 1 where something was refused or a run that was waited for did not complete."""
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        match given.verb:
            case "list":
                return await _list(api, given)
            case "show":
                return await _show(api, given)
            case "logs":
                return await logs(api, given)
            case "start":
                return await _start(api, given)
            case "job":
                return await jobs.job(api, given)
            case _ if is_bulk(given):
                return await jobs.start(api, given)
            case _:
                return await _change(api, given)


async def _list(api: ApiClient, given: argparse.Namespace) -> int:
    path = f"/api/projects/{quote(given.project, safe='')}/runs"
    async with naming(api, given.project, given.filter_workflow or ""):
        found = await listed(api, path, query(given), most(given))
    if not found.rows and given.filter_workflow:
        await require_workflow(api, given.project, given.filter_workflow)
    if given.json:
        sys.stdout.write(found.to_json())
        return EXIT_OK
    if not found.rows:
        sys.stdout.write(f"no such runs in {given.project}\n")
        return EXIT_OK
    sys.stdout.write(table(COLUMNS, map(run_row, found.rows)))
    found.tell_more()
    return EXIT_OK


async def _show(api: ApiClient, given: argparse.Namespace) -> int:
    path = f"/api/runs/{quote(given.run, safe='')}"
    text = await api.text(path)
    ended = None
    if given.wait:
        ended = await _waiting(api, given).end(given.run)
        text = await api.text(path)
    sys.stdout.write(text + "\n" if given.json else run_shown(text))
    return EXIT_OK if ended is None or ended.is_success else EXIT_FAILED


async def _start(api: ApiClient, given: argparse.Namespace) -> int:
    data = None if given.data is None else read_payload(given.data, "--data")
    members = {
        "idempotency_key": given.key,
        "delay": given.delay,
        "at": given.at,
        "tags": given.tag or None,
        "test": given.test or None,
    }
    path = f"/api/projects/{quote(given.project, safe='')}/workflows/{quote(given.workflow, safe='')}/runs"
    async with naming(api, given.project, given.workflow):
        run, is_new = await api.make(path, body_with(data, members))
    return await _tell_changed(api, given, "started" if is_new else "found", run)


async def _change(api: ApiClient, given: argparse.Namespace) -> int:
    """Each run by itself: one that is refused does not hold up the others."""
    refused = False
    for run_id in given.run:
        try:
            changed = await api.call("POST", f"/api/runs/{quote(run_id, safe='')}/{given.verb}", raw=_body(given))
        except ApiFailure as failure:
            if failure.status in (0, 401):
                raise
            sys.stderr.write(f"runr runs: {failure}\n")
            refused = True
            continue
        word = {"cancel": "cancelled", "retry": "retried", "replay": "replayed"}[given.verb]
        refused |= await _tell_changed(api, given, word, changed) != EXIT_OK
    return EXIT_FAILED if refused else EXIT_OK


def _body(given: argparse.Namespace) -> bytes:
    match given.verb:
        case "cancel":
            return body_with(None, {"children": "keep" if given.keep_children else None})
        case "replay":
            data = None if given.data is None else read_payload(given.data, "--data")
            return body_with(data, {"from_step": given.from_step})
    return b"{}"


async def _tell_changed(api: ApiClient, given: argparse.Namespace, word: str, changed: Mapping[str, Any]) -> int:
    """Prints a run that is new or goes on; with --wait its end instead, if it is for programs, or also."""
    waits = given.wait and given.verb != "cancel"
    if not given.json:
        of = f" as {changed['id']}" if given.verb == "replay" else ""
        source = changed["replay_of_run_id"] if given.verb == "replay" else changed["id"]
        sys.stdout.write(f"{word:10}{source}{of}  {changed['workflow']}, {changed['status']}\n")
        sys.stdout.flush()
    elif not waits:
        sys.stdout.write(json.dumps(changed) + "\n")
    if not waits:
        return EXIT_OK
    return tell_end(await _waiting(api, given).end(changed["id"]), as_json=given.json)


def tell_end(ended: Ended, *, as_json: bool) -> int:
    """Prints the end of a run; the exit code says whether it completed."""
    sys.stdout.write(ended.text + "\n" if as_json else ended.shown())
    sys.stdout.flush()
    return EXIT_OK if ended.is_success else EXIT_FAILED


def _waiting(api: ApiClient, given: argparse.Namespace) -> Waiting:
    if given.timeout is not None and given.timeout <= 0:
        raise Failure(f"--timeout {given.timeout:g}: it is more than 0", EXIT_USAGE)
    return Waiting(api, timeout_s=given.timeout, live=not given.json)
