"""A function server in a process of its own, as its user starts it, and `runr conformance` held against it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from services.core.runtime.python_child import python_command, python_environ
from tests.support.pages import ROOT

KEY = "wfsk_test_0123456789abcdef"
FALLBACK_KEY = "wfsk_before_0123456789"

_PATIENCE_S = 60.0
_LISTENS = re.compile(r"on (http://[\w.:\[\]-]+)\s*$")


@asynccontextmanager
async def serving(
    command: Sequence[str | Path], *, cwd: Path = ROOT, environ: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """The URL of the server, which it says in the first line of its stderr that ends with one."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        cwd=cwd,
        env={
            **python_environ(os.environ),
            "RUNR_WORKFLOW_SIGNING_KEY": KEY,
            "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK": FALLBACK_KEY,
            **(environ or {}),
        },
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    draining = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            url = await _listening(process.stderr)
        # A server whose stderr is full would stop.
        draining = asyncio.create_task(process.stderr.read())
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if draining is not None:
            await draining


async def conformance(url: str, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code of `runr conformance URL --json`, and what it says."""
    command = python_command("services.cli.main", "conformance", url, "--json", *options)
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={
            **python_environ(os.environ),
            "RUNR_WORKFLOW_SIGNING_KEY": KEY,
            "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK": FALLBACK_KEY,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert errors == b"", errors.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(said)


def names(said: Mapping[str, Any], state: str) -> list[str]:
    """The rules that are in a state, in order."""
    return [rule["name"] for rule in said["rules"] if rule["state"] == state]


async def _listening(errors: asyncio.StreamReader) -> str:
    said = ""
    while line := (await errors.readline()).decode():
        said += line
        match = _LISTENS.search(line)
        if match is not None:
            return match[1]
    raise AssertionError(f"the server has ended:\n{said}")
