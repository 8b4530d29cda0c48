"""Waiting for the end of a run, however long that takes, and through restarts of the gateway."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote

import msgspec

from services.cli.api import AWAY, ApiClient, ApiFailure
from services.cli.failure import Failure
from services.cli.runs.following import AWAY_S, Change, changes
from services.cli.table import one_line

_LONGEST_WAIT_S = 20
_PAUSE_S = 1.0
_LOOK_S = 2.0


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
        why = "" if self.error is None else f"  {_said(self.error)}"
        return "\n".join([f"{self.status:10}{self.id}{why}", *([self.output] if self.is_success else [])]) + "\n"


class Waiting:
    """Waits for runs. `timeout_s` bounds each wait, None does not; `live` tells on stderr what happens meanwhile."""

    def __init__(self, api: ApiClient, *, timeout_s: float | None, live: bool) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._live = live

    async def end(self, run_id: str) -> Ended:
        """The end of a run. Raises Failure after the timeout, or when the API is away for long."""
        states: dict[str, str] = {}
        began = monotonic()
        if self._live:
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self._watch(run_id, states)
            except TimeoutError:
                raise self._late(run_id, states) from None
        return await self._result(run_id, states, began)

    async def _watch(self, run_id: str, states: dict[str, str]) -> None:
        """Tell what happens, or why nothing does, until the run has ended."""
        looking = asyncio.create_task(self._look(run_id, states), name="why-it-waits")
        try:
            async with aclosing(changes(self._api, run_id)) as told:
                async for change in told:
                    _tell(states, change)
        finally:
            looking.cancel()

    async def _look(self, run_id: str, states: Mapping[str, str]) -> None:
        """While the run is queued for longer than a moment, tell what it waits for, once each."""
        told = ""
        while True:
            await asyncio.sleep(_LOOK_S)
            if states.get("") != "queued":
                continue
            try:
                run = await self._api.call("GET", f"/api/runs/{quote(run_id, safe='')}")
            except ApiFailure:
                continue
            said = run["waiting_for"]["message"] if run["waiting_for"] else told
            if said != told:
                sys.stderr.write(f"{run_id}  {one_line(said)}\n")
                sys.stderr.flush()
                told = said

    async def _result(self, run_id: str, states: dict[str, str], began: float) -> Ended:
        path = f"/api/runs/{quote(run_id, safe='')}/result"
        answered = monotonic()
        while True:
            left_s = _LONGEST_WAIT_S if self._timeout_s is None else began + self._timeout_s - monotonic()
            try:
                text = await self._api.text(f"{path}?wait={max(int(min(_LONGEST_WAIT_S, left_s)), 1)}")
                answered = monotonic()
                found = msgspec.json.decode(text, type=_Result)
                states[""] = found.status
                if found.ended:
                    return Ended(found.id, found.status, text, bytes(found.output).decode(), found.error)
            except ApiFailure as failure:
                if failure.status not in AWAY or monotonic() - answered > AWAY_S:
                    raise
                await asyncio.sleep(_PAUSE_S)
            if self._timeout_s is not None and monotonic() - began >= self._timeout_s:
                raise self._late(run_id, states)

    def _late(self, run_id: str, states: Mapping[str, str]) -> Failure:
        return Failure(
            f"run {run_id} has not ended after {self._timeout_s:g} s and goes on;"
            f" its status is {states.get('', 'not known')}. Look at it with `runr runs show {run_id}`"
        )


def _tell(states: dict[str, str], change: Change) -> None:
    """What has changed of a run since it was last told of."""
    run = change.run
    for attempt in run["attempts"]:
        when = f"{attempt['attempt']} {attempt['ended_at']}"
        if attempt["error"] and when not in states:
            sys.stderr.write(f"{run['id']}  function attempt {attempt['attempt']} failed: {_said(attempt['error'])}\n")
            states[when] = ""
    of_run, of_steps = ("", run["status"]), [(step["id"], step["status"]) for step in change.steps]
    # The end of a run comes behind what has led to it.
    for step, status in [*of_steps, of_run] if change.is_last else [of_run, *of_steps]:
        if states.get(step) != status:
            sys.stderr.write(f"{run['id']}  {f'step {one_line(step)} ' if step else ''}{status}\n")
            states[step] = status
    sys.stderr.flush()


def _said(error: Mapping[str, Any]) -> str:
    return one_line(f"{error['name']}: {error['message']}")
