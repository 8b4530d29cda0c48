"""A child as its supervisor sees it, and the usual way to get one: fork and exec."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from services.core.runtime.parent import PARENT_PIPE


class ChildProcess(Protocol):
    """A running child. It holds the read end of a pipe of ours as its stdin."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def returncode(self) -> int | None:
        """How it ended, as `subprocess` has it; None while it runs."""
        ...

    async def wait(self) -> int:
        """Returns its code when it has ended."""
        ...

    def terminate(self) -> None:
        """SIGTERM."""
        ...

    def kill(self) -> None:
        """SIGKILL."""
        ...


Spawn = Callable[[Sequence[str], Mapping[str, str], Sequence[int]], Awaitable[ChildProcess]]
"""Starts a command with an environment and descriptors to inherit."""


async def exec_child(command: Sequence[str], environ: Mapping[str, str], pass_fds: Sequence[int]) -> ChildProcess:
    """Starts a child in a session of its own."""
    return await asyncio.create_subprocess_exec(
        *command,
        env={**environ, PARENT_PIPE: "1"},
        stdin=subprocess.PIPE,
        # A terminal's Ctrl-C must reach us only, so that the order of the stop is ours.
        start_new_session=True,
        pass_fds=pass_fds,
    )
