"""Processes of this program that are forked from one that has imported everything (`fork_server.py`), where that can be
had, and else are started the usual way. To a test there is no difference but what a start costs.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Protocol

from services.core.runtime.python_child import python_command, python_environ

_OURS = tuple(python_command(""))[:-1]
_START_S = 60.0
_READ_BY_INTERPRETER = ("PYTHON", "LC_", "LANG")


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def stdin(self) -> IO[bytes] | None:
        """The other end of its stdin."""
        ...

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended. Raises subprocess.TimeoutExpired."""
        ...


class Forked:
    """A process that the fork server has forked. See `Process`."""

    def __init__(self, pid: int, stdin: IO[bytes], ended: int) -> None:
        """`ended` is a descriptor that its exit code comes from."""
        self.pid = pid
        self.stdin = stdin
        self._ended = ended
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """See `Process`."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """See `Process`."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        with self._lock:
            if self._code is None and select.select([self._ended], [], [], timeout)[0]:
                self._code = int(os.read(self._ended, 16))
                os.close(self._ended)
            return self._code


class _Server:
    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_START_S)
        self._lock = threading.Lock()
        self._folder = TemporaryDirectory(prefix="runr-fork-")
        self.folder = Path(self._folder.name)
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as others:
            others.bind(str(self.folder / "socket"))
            others.listen()
            given = (theirs.fileno(), others.fileno())
            self._process = subprocess.Popen(
                python_command("tests.support.fork_server", *map(str, given)),
                env=python_environ(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=given,
            )

    def close(self) -> None:
        self._control.close()
        self._process.wait()
        self._folder.cleanup()

    def fork(self, command: Sequence[str], environ: Mapping[str, str], cwd: Path, stdout: int, stderr: int) -> Forked:
        module, *arguments = command
        asked = {"module": module, "arguments": arguments, "environ": dict(environ), "cwd": str(cwd)}
        stdin, ours = os.pipe()
        ended, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._control, [json.dumps(asked).encode()], [stdin, stdout, stderr, theirs])
                pid = json.loads(self._control.recv(64))["pid"]
        finally:
            os.close(stdin)
            os.close(theirs)
        return Forked(pid, os.fdopen(ours, "wb", buffering=0), ended)


@cache
def _server() -> _Server:
    """The fork server of this process, which ends with it."""
    made = _Server()
    atexit.register(made.close)
    return made


@cache
def runr_folder() -> Path:
    """A folder for PATH whose `runr` is that of this environment."""
    runr = Path(sys.executable).with_name("runr")
    if sys.platform != "linux":
        return runr.parent
    folder = _server().folder
    client = Path(__file__).with_name("fork_client.py")
    script = folder / "runr"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {client} {folder}/socket services.cli.main "$@"\n')
    script.chmod(0o755)
    return folder


def start(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    cwd: Path | None = None,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes],
) -> Process:
    """Starts a command in a session of its own; its stdin is a pipe of ours, its stdout ours where none is given."""
    if sys.platform == "linux" and tuple(command[: len(_OURS)]) == _OURS and not _is_for_interpreter(environ):
        out = 1 if stdout is None else stdout.fileno()
        return _server().fork(command[len(_OURS) :], environ, cwd or Path.cwd(), out, stderr.fileno())
    return subprocess.Popen(
        command, env=environ, cwd=cwd, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
    )


def _is_for_interpreter(environ: Mapping[str, str]) -> bool:
    """Whether there is something in it that an interpreter reads when it starts, and that is not so for us."""
    return any(
        os.environ.get(name) != value
        for name, value in environ.items()
        if name.startswith(_READ_BY_INTERPRETER) and name != "PYTHONPATH"
    )
