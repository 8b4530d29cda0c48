"""Waiting for the end of a run, however long that takes, and through restarts of the gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote

import msgspec

from services.cli.api import ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.table import one_line

_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 2, 20
# What is told while waiting must cost little, however long a run's history is.
_LOOK_SHARE = 10
_AWAY = (0, 429, 502, 503, 504)
_AWAY_S = 60.0
_PAUSE_S = 1.0


class _Result(msgspec.Struct):
    id: str
    status: str
    ended: bool
    output: msgspec.Raw
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a run. `text` is the API's answer, `output` the JSON text of what the run gave, as it is stored."""

    id: str
    status: str
    text: str
    output: str
    error: Mapping[str, Any] | None

    @property
    def is_success(self) -> bool:
        """Whether the run came to its own end."""
        return self.status == "completed"

    def shown(self) -> str:
        """For people: the outcome, and below it the output."""
        if self.error is None:
            head = f"{self.status:10}{self.id}"
        else:
            said = one_line(f"{self.error['name']}: {self.error['message']}")
            head = f"{self.status:10}{self.id}  {said}"
        return "\n".join([head, *([self.output] if self.is_success else [])]) + "\n"


class Waiting:
    """Waits for runs. `timeout_s` bounds each wait, None does not; `live` tells on stderr what happens meanwhile."""

    def __init__(self, api: ApiClient, *, timeout_s: float | None, live: bool) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._live = live

    async def end(self, run_id: str) -> Ended:
        """The end of a run. Raises Failure after the timeout, or when the API is away for long."""
        path = f"/api/runs/{quote(run_id, safe='')}"
        status, wait_s = "not known", float(_SHORTEST_WAIT_S)
        seen: dict[str, str] = {}
        began = answered = monotonic()
        while True:
            left_s = _LONGEST_WAIT_S if self._timeout_s is None else began + self._timeout_s - monotonic()
            try:
                text = await self._api.text(f"{path}/result?wait={max(int(min(wait_s, left_s)), 1)}")
                found = msgspec.json.decode(text, type=_Result)
                if found.ended:
                    return Ended(found.id, found.status, text, bytes(found.output).decode(), found.error)
                status, looked = found.status, monotonic()
                if self._live:
                    _tell(seen, await self._api.call("GET", path))
                    wait_s = min(max(_SHORTEST_WAIT_S, _LOOK_SHARE * (monotonic() - looked)), _LONGEST_WAIT_S)
                answered = monotonic()
            except ApiFailure as failure:
                if failure.status not in _AWAY or monotonic() - answered > _AWAY_S:
                    raise
                await asyncio.sleep(_PAUSE_S)
            if self._timeout_s is not None and monotonic() - began >= self._timeout_s:
                raise Failure(
                    f"run {run_id} has not ended after {self._timeout_s:g} s and goes on; its status is {status}."
                    f" Look at it with `runr runs show {run_id}`"
                )


def _tell(seen: dict[str, str], run: Mapping[str, Any]) -> None:
    """What has changed of a run since it was looked at."""
    states = {"": run["status"], **{step["id"]: step["status"] for step in run["steps"]}}
    for step, status in states.items():
        if seen.get(step) != status:
            sys.stderr.write(f"{run['id']}  {f'step {one_line(step)} ' if step else ''}{status}\n")
    sys.stderr.flush()
    seen.update(states)
