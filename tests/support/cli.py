"""The `runr` command as a shell starts it, told by its environment where the API is."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from services.core.runtime.python_child import python_command, python_environ
from tests.support import forked
from tests.support.rest import Rest

_LIMIT_S = 90


@dataclass(frozen=True, slots=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as one JSON document."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[list[str]]:
        """The words of each line of its output."""
        return [line.split() for line in self.out.splitlines()]


class Shell:
    """Runs commands against the gateway of a client, with its token."""

    def __init__(self, rest: Rest, folder: Path, **environ: str) -> None:
        self._folder = folder
        known = {"RUNR_API_URL": rest.base, "RUNR_TOKEN": rest.token, "RUNR_HOME": str(folder)}
        self.environ = {"PATH": "/usr/bin", **known, "RUNR_CONFIG": str(folder / "contexts.json"), **environ}

    async def runr(self, *words: str, stdin: str = "") -> Said:
        """One command, once it has ended."""
        return await asyncio.to_thread(self._run, words, stdin)

    async def ok(self, *words: str, stdin: str = "") -> Said:
        """One command that must succeed without a word on stderr."""
        said = await self.runr(*words, stdin=stdin)
        assert (said.code, said.err) == (0, ""), said
        return said

    def _run(self, words: tuple[str, ...], stdin: str) -> Said:
        command = python_command("services.cli.main", *words)
        with TemporaryFile() as out, TemporaryFile() as err:
            process = forked.start(
                command, environ=python_environ(self.environ), cwd=self._folder, stdout=out, stderr=err
            )
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin.encode())
            try:
                code = process.wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                raise
            return Said(code, _read(out), _read(err))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
