"""`runr workflows check`: whether the code at a URL fits what is stored, before it is deployed.

Always asked are its definitions; with `--against-active` also each active run of the project, by a dry request that
executes nothing. How to read it: docs/how-to/deploy-changed-code.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from services.cli.api import ApiClient, ApiFailure
from services.cli.check.ask import DRY, Asker
from services.cli.check.divergence import Divergence
from services.cli.check.stored_run import ACTIVE, StoredRun, read_run
from services.cli.conformance.command import KEY_VARIABLE, verifies_tls
from services.cli.conformance.wire import Place
from services.cli.failure import Failure
from services.cli.http_url import is_http_url
from services.cli.reach import reach_api
from services.cli.table import counted
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE

_AT_ONCE = 8
_PAGE = 200


@dataclass(frozen=True, slots=True)
class Checked:
    """An active run and where the code parts from it, None where it does not."""

    run: StoredRun
    divergence: Divergence | None


async def run(
    environ: Mapping[str, str],
    *,
    project: str,
    url: str | None,
    key: str | None,
    against_active: bool,
    workflow: str | None,
    most: int,
    as_json: bool,
    tenant: str | None = None,
) -> int:
    """Prints the runs that would diverge; 1 if there are any, or if not every run could be asked about."""
    base, token = reach_api(environ)
    async with ApiClient(base, token, tenant=tenant) as api:
        check = _Check(api, f"/api/projects/{quote(project, safe='')}")
        where = url or await check.endpoint()
        if not is_http_url(where):
            raise Failure(f"--url {where}: not a URL; write it with its scheme, as http://127.0.0.1:8000", EXIT_USAGE)
        secret = key or environ.get(KEY_VARIABLE) or await check.signing_key()
        asker = Asker(Place.of(where, verify_tls=verifies_tls(environ)), secret, url=where)
        introspection, served = await asker.introspect()
        found: list[Checked] = []
        left = False
        if against_active:
            if DRY not in introspection.capabilities:
                raise Failure(f"{where}: its SDK has not the capability {DRY}: a dry request would execute steps")
            ids, left = await check.active(workflow, most)
            found = await check.runs(ids, asker, served)
    if as_json:
        sys.stdout.write(_as_json(project, where, served, found, left) + "\n")
    else:
        _tell(project, where, served, found if against_active else None, left, most)
    return EXIT_FAILED if left or any(each.divergence for each in found) else EXIT_OK


class _Check:
    """What is asked of the API about one project."""

    def __init__(self, api: ApiClient, path: str) -> None:
        self._api = api
        self._path = path

    async def endpoint(self) -> str:
        """The URL that the project has. Raises Failure without one."""
        app = await self._api.call("GET", f"{self._path}/workflows/app")
        url = app.get("endpoint_url")
        if not isinstance(url, str):
            raise Failure("the project has no endpoint: say with --url where the code is", EXIT_USAGE)
        return url

    async def signing_key(self) -> str:
        """The project's signing key; that it was shown is in the audit log."""
        return str((await self._api.call("GET", f"{self._path}/workflows/app/signing-key"))["signing_key"])

    async def active(self, workflow: str | None, most: int) -> tuple[list[str], bool]:
        """Ids of active runs, at most so many, and whether there are more."""
        ids: list[str] = []
        given = [("limit", str(_PAGE)), *(("status", status) for status in ACTIVE)]
        query = [*given, ("workflow", workflow)] if workflow else given
        cursor: str | None = None
        while len(ids) <= most:
            more = [("cursor", cursor)] if cursor else []
            page = await self._api.call("GET", f"{self._path}/runs?{urlencode([*query, *more])}")
            ids += [each["id"] for each in page["data"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        return ids[:most], len(ids) > most

    async def runs(self, ids: Sequence[str], asker: Asker, served: frozenset[str]) -> list[Checked]:
        """All runs that are still active, in the order of their ids."""
        slots = asyncio.Semaphore(_AT_ONCE)

        async def check(run_id: str) -> Checked | None:
            async with slots:
                stored = await self._run(run_id)
                return None if stored is None else Checked(stored, await asker.ask(stored, served))

        checked = await asyncio.gather(*map(check, ids))
        return [each for each in checked if each is not None]

    async def _run(self, run_id: str) -> StoredRun | None:
        """The run; None where it has ended, or is gone, since it was listed."""
        try:
            stored = read_run(await self._api.text(f"/api/runs/{run_id}"))
        except ApiFailure as failure:
            if failure.status == 404:
                return None
            raise
        return stored if stored.status in ACTIVE else None


def _tell(
    project: str, url: str, served: frozenset[str], found: Sequence[Checked] | None, left: bool, most: int
) -> None:
    lines = [f"served    {', '.join(sorted(served)) or 'no workflows'} at {url}"]
    for each in found or ():
        if each.divergence is not None:
            lines.append(f"DIVERGES  {each.run.id}  {each.run.workflow}, {each.run.status}: {_words(each.divergence)}")
    if found is not None:
        bad = sum(each.divergence is not None for each in found)
        lines.append(f"checked   {counted(len(found), 'active run')} of {project}, {bad} would diverge")
    if left:
        lines.append(f"left      there are more than {counted(most, 'active run')}: say --most, or check by --workflow")
    sys.stdout.write("\n".join(lines) + "\n")


def _words(divergence: Divergence) -> str:
    return divergence.message if divergence.step is None else f"step {divergence.step!r}: {divergence.message}"


def _as_json(project: str, url: str, served: frozenset[str], found: Sequence[Checked], left: bool) -> str:
    return json.dumps(
        {
            "project": project,
            "url": url,
            "workflows": sorted(served),
            "complete": not left,
            "runs": [_row(each) for each in found],
        }
    )


def _row(checked: Checked) -> dict[str, Any]:
    run, divergence = checked.run, checked.divergence
    return {
        "id": run.id,
        "workflow": run.workflow,
        "status": run.status,
        "divergence": None
        if divergence is None
        else {"kind": divergence.kind, "step": divergence.step, "message": divergence.message},
    }
