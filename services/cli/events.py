"""`runr events`: sends events and looks at them (engine section 12)."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.reach import reach_api
from services.cli.runs.command import tell_end
from services.cli.runs.paging import listed, most
from services.cli.runs.payload import body_with, read_payload
from services.cli.runs.waiting import Waiting
from services.cli.table import counted, one_line, table
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE

_LOOK_REFUSED = 403


async def run(environ: Mapping[str, str], given: argparse.Namespace) -> int:
    """One verb; 1 where a run that was waited for did not complete."""
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=given.tenant) as api:
        return await (_send(api, given) if given.verb == "send" else _list(api, given))


async def _send(api: ApiClient, given: argparse.Namespace) -> int:
    sent = await api.call_surely(f"/api/events{'?test=1' if given.test else ''}", _body(given))
    if not given.json:
        for event in sent["events"]:
            sys.stdout.write(await _effects(api, event))
        sys.stdout.flush()
    elif not given.wait:
        sys.stdout.write(json.dumps(sent) + "\n")
    if not given.wait:
        return EXIT_OK
    waiting = Waiting(api, timeout_s=given.timeout, live=not given.json)
    codes = [
        tell_end(await waiting.end(run_id), as_json=given.json) for event in sent["events"] for run_id in event["runs"]
    ]
    return EXIT_FAILED if any(codes) else EXIT_OK


def _body(given: argparse.Namespace) -> bytes:
    if (given.name is None) == (given.file is None):
        raise Failure("say what is sent: a NAME, with --data, or --file", EXIT_USAGE)
    if given.file is not None:
        if given.data is not None or given.id is not None:
            raise Failure(
                "--data and --id are for an event that is named; in a file they are beside its name", EXIT_USAGE
            )
        return read_payload("-" if given.file == "-" else f"@{given.file}", "--file")
    data = None if given.data is None else read_payload(given.data, "--data")
    return body_with(data, {"name": given.name, "id": given.id})


async def _effects(api: ApiClient, event: Mapping[str, Any]) -> str:
    """What an event came to; of one that did nothing also why, as far as the token may know."""
    lines = [f"{'duplicate' if event['duplicate'] else 'sent':10}{event['id']}  {one_line(event['name'])}"]
    lines += [f"{'started':10}{run_id}" for run_id in event["runs"]]
    lines += [f"{word:10}{counted(event[word], 'run')}" for word in ("resumed", "cancelled") if event[word]]
    if len(lines) == 1 and not event["duplicate"]:
        lines += [f"{'skipped':10}{said}" for said in await _skipped(api, event["id"])] or [
            "          nothing came of it yet: it starts no workflow, no run waits for it; see `runr workflows list`"
        ]
    return "\n".join(lines) + "\n"


async def _skipped(api: ApiClient, event_id: str) -> Sequence[str]:
    try:
        found = await api.call("GET", f"/api/events/{quote(event_id, safe='')}")
    except ApiFailure as failure:
        if failure.status == _LOOK_REFUSED:
            return ()
        raise
    return [one_line(f"{skip['workflow']} of {skip['project']}: {skip['reason']}") for skip in found["skipped"]]


async def _list(api: ApiClient, given: argparse.Namespace) -> int:
    asked = (
        ("name", given.name),
        ("source", given.source),
        ("project_id", given.project),
        ("from", given.since),
        ("to", given.until),
    )
    found = await listed(api, "/api/events", [(name, value) for name, value in asked if value is not None], most(given))
    if given.json:
        sys.stdout.write(found.to_json())
    elif not found.rows:
        sys.stdout.write("no such events\n")
    else:
        head = ("EVENT", "NAME", "SOURCE", "RECEIVED", "STARTED", "RESUMED", "CANCELLED")
        sys.stdout.write(table(head, map(_row, found.rows)))
        found.tell_more()
    return EXIT_OK


def _row(event: Mapping[str, Any]) -> Sequence[str]:
    counts = (str(event[name]) for name in ("started", "resumed", "cancelled"))
    return (event["id"], event["name"], event["source"], str(event["received_at"]), *counts)
