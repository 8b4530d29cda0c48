"""The owner's side of the keeper: start Postgres and NATS for this process, and let them go with it.

Blocking by design: it is used before an event loop runs, from test fixtures, and in threads.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from services.core.runtime.python_child import python_command, python_environ
from services.embedded.home import Home

_START_S = 90.0
_COMMAND_S = 60.0
_CLOSE_S = 40.0


class StackFailed(Exception):
    """The servers did not start or obey; the text says why."""


class EmbeddedStack:
    """The embedded servers of a home. Use as a context manager, or `close` it."""

    def __init__(
        self, home: Home, environ: Mapping[str, str] = os.environ, servers: Sequence[str] = ("postgres", "nats")
    ) -> None:
        self.home = home
        self.urls: dict[str, str] = {}
        self.pids: dict[str, int | None] = {}
        self._buffer = b""
        self._keeper = subprocess.Popen(
            python_command("services.embedded.keeper"),
            cwd="/",
            env=python_environ(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._send({"home": str(home.path), "owner": os.getpid(), "servers": list(servers)})
            self._take_answer(_START_S)
        except BaseException:
            self.close()
            raise

    @property
    def keeper_pid(self) -> int:
        """The pid of the process that holds the servers."""
        return self._keeper.pid

    @property
    def is_alive(self) -> bool:
        """Whether the keeper still runs."""
        return self._keeper.poll() is None

    def stop(self, server: str) -> None:
        """Stops `postgres` or `nats`; it stays down. Returns when it is down."""
        self._command("stop", server)

    def start(self, server: str) -> None:
        """Starts a stopped server on its old port. Returns when it answers."""
        self._command("start", server)

    def kill(self, server: str) -> None:
        """Kills a server with SIGKILL; the keeper brings it back by itself."""
        self._command("kill", server)

    def close(self) -> None:
        """Stops the servers and the keeper; a second call does nothing."""
        keeper = self._keeper
        if keeper.stdin is not None and not keeper.stdin.closed:
            try:
                keeper.stdin.close()
            except BrokenPipeError:
                keeper.poll()
        try:
            keeper.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        if keeper.stdout is not None:
            keeper.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _command(self, verb: str, server: str) -> None:
        self._send({"do": verb, "server": server})
        self._take_answer(_COMMAND_S)

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._keeper.stdin is not None
        try:
            self._keeper.stdin.write(json.dumps(message).encode() + b"\n")
            self._keeper.stdin.flush()
        except BrokenPipeError:
            raise StackFailed("the keeper of the embedded servers is gone") from None

    def _take_answer(self, timeout_s: float) -> None:
        answer = json.loads(self._read_line(timeout_s))
        if answer["state"] == "failed":
            raise StackFailed(answer["message"])
        self.urls.update(answer.get("urls", {}))
        self.pids.update(answer["pids"])

    def _read_line(self, timeout_s: float) -> bytes:
        assert self._keeper.stdout is not None
        fd = self._keeper.stdout.fileno()
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([fd], [], [], timeout_s)
            if not readable:
                raise StackFailed(f"the embedded servers did not answer within {timeout_s:g} s")
            chunk = os.read(fd, 65_536)
            if not chunk:
                raise StackFailed("the keeper of the embedded servers ended; its reason is on stderr")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
