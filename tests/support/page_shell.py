"""The shell blocks of a page, run in bash against the API of a client, as its reader would."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.forked import runr_folder
from tests.support.pages import Page
from tests.support.rest import Rest

_LIMIT_S = 90.0
# Each answer of the API is followed by its status.
_CURL = "curl() { command curl -w '\\n<%{http_code}>\\n' \"$@\"; }\n"
_STATUS = re.compile(r"^<(\d+)>$", re.MULTILINE)


class Ended(NamedTuple):
    """What a block said on stdout, and the statuses that the API answered."""

    out: str
    statuses: list[int]


class PageShell:
    """Runs blocks of one page, and knows which. Each must end well; `runr` is that of this environment."""

    def __init__(self, rest: Rest, page: Page, folder: Path) -> None:
        self.folder = folder
        self.run: set[int] = set()
        self._blocks = page.blocks("sh")
        self.environ = {
            "PATH": os.pathsep.join([str(runr_folder()), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RUNR_HOME": str(folder),
            "RUNR_CONFIG": str(folder / "contexts.json"),
            "RUNR_API_URL": rest.base,
            "RUNR_TOKEN": rest.token,
            "API": f"{rest.base}/api",
            "TOKEN": rest.token,
        }

    async def block(self, number: int, *replaced: tuple[str, str], **variables: str) -> Ended:
        """The block of a number, from 0. `replaced`: words of the page, and what the reader has in their place."""
        text = self._blocks[number]
        for word, instead in replaced:
            assert word in text, f"block {number} has no {word!r}"
            text = text.replace(word, instead)
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-euc",
            _CURL + text,
            cwd=self.folder,
            env={**self.environ, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                out, err = (said.decode() for said in await process.communicate())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, f"block {number}:\n{text}\n{out}{err}"
        self.run.add(number)
        return Ended(out, [int(status) for status in _STATUS.findall(out)])
