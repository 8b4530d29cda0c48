"""The process that services are forked from, already imported: a start costs milliseconds instead of half a second of a
core, and what the four have in common is in memory once.

It runs no loop, starts no thread and opens no library before it forks, so a child begins as an interpreter does that
has just imported everything. It obeys whoever holds the other end of its socket, and ends with it. Linux only: by a pid
descriptor the supervisor waits for, and signals, a process that is not its own child.

Messages are JSON, a packet each. `{"arguments", "environ"}` with the child's stdin → `{"pid"}` with its pid descriptor;
later `{"ended", "code"}`, a code as `subprocess` has it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from services.cli.main import main
from services.cli.serve import SERVICES

MOST_BYTES = 1 << 17
"""The longest message."""

_ARGUMENTS_AT = 45  # arg_start in /proc/self/stat, counted behind the name


class ForkServer:
    """Forks on request, and tells which of its children have ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def serve(self) -> list[str] | None:
        """Returns twice: in each child with its arguments, and with None when nobody holds the other end any more."""
        with selectors.DefaultSelector() as selector, suppress(BrokenPipeError, ConnectionResetError):
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                if self._control.fileno() not in ready:
                    continue
                packet, fds, _, _ = socket.recv_fds(self._control, MOST_BYTES, 1)
                if not packet:
                    return None
                arguments = self._fork(json.loads(packet), fds[0])
                if arguments is not None:
                    return arguments
        return None

    def _fork(self, asked: dict[str, object], stdin: int) -> list[str] | None:
        pid = os.fork()
        if pid == 0:
            return self._be_child(asked, stdin)
        os.close(stdin)
        handle = os.pidfd_open(pid)
        socket.send_fds(self._control, [json.dumps({"pid": pid}).encode()], [handle])
        os.close(handle)
        return None

    def _be_child(self, asked: dict[str, object], stdin: int) -> list[str]:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for inherited in (self._woken, self._waker):
            os.close(inherited)
        self._control.close()
        # A terminal's Ctrl-C must reach the supervisor only, so that the order of the stop is its own.
        os.setsid()
        os.dup2(stdin, 0)
        os.close(stdin)
        arguments, environ = asked["arguments"], asked["environ"]
        assert isinstance(arguments, list)
        assert isinstance(environ, dict)
        os.environ.clear()
        os.environ.update(environ)
        return arguments

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._control.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def show_arguments(arguments: Sequence[str]) -> None:
    """Lets `ps` show what this process does, in the place of the command line that it was forked with."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    begin, end = (int(field) for field in fields[_ARGUMENTS_AT : _ARGUMENTS_AT + 2])
    shown = "\0".join(arguments).encode()[: max(0, end - begin - 1)]
    if begin:
        ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)


def run(control: socket.socket) -> int:
    """Serves until the supervisor is gone; in a child, runs what it is for. The exit code."""
    os.close(os.pidfd_open(os.getpid()))  # a system that has none of these ends the server here, and is told so
    for service in SERVICES:
        importlib.import_module(f"services.{service}.app")
    if len(os.listdir("/proc/self/task")) > 1:
        sys.stderr.write("runr: something that was imported has started a thread, so nothing is forked\n")
        return 1
    # What is here now is never looked at by a child's garbage collector, which would copy the pages.
    gc.collect()
    gc.freeze()
    arguments = ForkServer(control).serve()
    if arguments is None:
        return 0
    sys.argv = ["runr", *arguments]
    show_arguments(sys.argv)
    return main(arguments)


if __name__ == "__main__":
    raise SystemExit(run(socket.socket(fileno=int(sys.argv[1]))))
