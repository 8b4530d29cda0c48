"""Asks a function about runs: what it serves, and, by dry requests, what it would do next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from services.cli.check.divergence import Divergence, diverges
from services.cli.check.stored_run import StoredRun
from services.cli.conformance.post import Post, Signer
from services.cli.conformance.wire import NoAnswer, Place, Reply, Wire
from services.cli.dry_run import read_dry
from services.cli.failure import Failure
from services.core.domain.envelope import introspect_request
from services.core.domain.errors import InvalidInput
from services.core.domain.function_answer import Introspection, parse_introspection
from services.core.domain.op import FunctionFault
from services.core.domain.workflow import validate_definitions

DRY = "dry"

_TIMEOUT_S = 60.0


class Asker:
    """Sends signed requests to one function."""

    def __init__(self, place: Place, key: str, *, url: str) -> None:
        self._place = place
        self._key = key
        self._url = url

    async def introspect(self) -> tuple[Introspection, frozenset[str]]:
        """What the function says of itself, and the names of its workflows. Raises Failure, for bad definitions too."""
        unix_s = int(time.time())
        try:
            reply = await self._send(self._signer(unix_s).post("", introspect_request(unix_s)))
            found = parse_introspection(reply.status, reply.body)
            definitions, _ = validate_definitions(found.workflows, strict_unknown=False)
        except (NoAnswer, FunctionFault) as error:
            raise Failure(f"{self._url}: {error}") from None
        except InvalidInput as error:
            faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.errors) or error.message
            raise Failure(f"{self._url}: a sync would refuse its definitions: {faults}") from None
        return found, frozenset(definition.name for definition in definitions)

    async def ask(self, run: StoredRun, served: frozenset[str]) -> Divergence | None:
        """Where the code parts from a run; None where it does not."""
        if run.workflow not in served:
            return Divergence("not_served", f"the workflow {run.workflow} is not served by this code")
        unix_s = int(time.time())
        headers = {
            "X-RunR-Workflow": run.workflow,
            "X-RunR-Run-Id": run.id,
            "X-RunR-Attempt": str(run.info.attempt),
        }
        post = self._signer(unix_s, headers).post("", run.dry_request(unix_s), kind="execute")
        try:
            reply = await self._send(post)
            return diverges(run, read_dry(reply.status, reply.body))
        except (NoAnswer, FunctionFault) as error:
            return Divergence("unknown", f"the function could not be asked: {error}")

    def _signer(self, unix_s: int, headers: dict[str, str] | None = None) -> Signer:
        return Signer(keys=_keys(self._key), unix_s=unix_s, headers=headers or {})

    async def _send(self, post: Post) -> Reply:
        try:
            async with asyncio.timeout(_TIMEOUT_S), Wire(self._place) as wire:
                return await wire.exchange(post.headers, post.body)
        except TimeoutError:
            raise NoAnswer(f"no answer within {_TIMEOUT_S:g} s") from None


def _keys(key: str) -> Sequence[str]:
    return (key,)
