"""The process that the tests' processes of the engine are forked from, already imported: a start costs a fifth of what
it costs an interpreter that imports everything anew. `forked.py` is the side of the tests.

It runs no loop, starts no thread and opens no library before it forks, so a child begins as an interpreter does that
has just imported what it needs. It ends with whoever holds the other end of its socket.

A packet each: `{"module", "arguments", "environ", "cwd"}` with the child's stdin, stdout, stderr and the write end of a
pipe → `{"pid"}`. The pipe gets the exit code, as `subprocess` has it, when the child has ended. Others may ask too, one
packet a connection (`fork_client.py`).
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import sys
from contextlib import suppress
from typing import Any

from services.cli import fork_server
from services.cli.fork_server import MOST_BYTES, show_arguments

_GIVEN = 4  # descriptors that come with a request
_LOADED = (
    *(f"services.{service}.app" for service in ("ingest", "scheduler", "executor", "gateway")),
    *("services.cli.main", "services.cli.api", "services.cli.runs.command"),
)


class ForkServer(fork_server.ForkServer):
    """Forks as the product's does, but for any module, and with all three streams. Each child's end is told in a pipe
    of its own. At `others` anybody may ask.
    """

    def __init__(self, control: socket.socket, others: socket.socket) -> None:
        super().__init__(control)
        self._others = others
        self._told: dict[int, int] = {}
        """Pid → where its exit code goes."""

    def serve(self) -> list[str] | None:
        """Returns in each child, with its module and arguments, and with None when nobody holds the other end."""
        with selectors.DefaultSelector() as selector:
            for file in (self._control, self._others, self._woken):
                selector.register(file, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select()}
                if self._woken in ready:
                    os.read(self._woken, 4096)
                    self._reap()
                asked = None
                if self._others.fileno() in ready:
                    connection, _ = self._others.accept()
                    with connection:
                        asked = self._answer(connection)
                elif self._control.fileno() in ready:
                    if not self._control.recv(1, socket.MSG_PEEK):
                        return None
                    asked = self._answer(self._control)
                if asked is not None:
                    return asked

    def _answer(self, asking: socket.socket) -> list[str] | None:
        """In the child, what it is asked for. Whoever asks nothing gets nothing."""
        packet, fds, _, _ = socket.recv_fds(asking, MOST_BYTES, _GIVEN)
        if not packet:
            return None
        pid = os.fork()
        if pid == 0:
            return self._begin(json.loads(packet), fds)
        *stdio, self._told[pid] = fds
        for fd in stdio:
            os.close(fd)
        asking.send(json.dumps({"pid": pid}).encode())
        return None

    def _begin(self, asked: dict[str, Any], fds: list[int]) -> list[str]:
        stdin, stdout, stderr, told = fds
        arguments = self._be_child(asked, stdin)
        self._others.close()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        for fd in (stdout, stderr, told, *self._told.values()):
            os.close(fd)
        os.chdir(asked["cwd"])
        return [asked["module"], *arguments]

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                told = self._told.pop(pid)
                with suppress(BrokenPipeError):
                    os.write(told, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(told)


def _open_streams() -> None:
    """Streams for the descriptors that are there now: those of the server remember what could be done with its own."""
    sys.stdin, sys.stdout, sys.stderr = (
        open(fd, mode, 1 if old is sys.stderr else -1, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        for fd, mode, old in ((0, "r", sys.stdin), (1, "w", sys.stdout), (2, "w", sys.stderr))
    )


def run(control: socket.socket, others: socket.socket) -> None:
    """Serves until the tests are gone; in a child, runs the module that it is for as `python -m` does."""
    for module in _LOADED:
        importlib.import_module(module)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("something that was imported has started a thread, so nothing can be forked")
    # What is here now is never looked at by a child's garbage collector, which would copy the pages.
    gc.collect()
    gc.freeze()
    asked = ForkServer(control, others).serve()
    if asked is None:
        return
    _open_streams()
    sys.argv = asked
    show_arguments([sys.executable, "-P", "-m", *asked])
    module = asked[0]
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # it is run, not imported, as `python -m` warns who mistakes the two
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])))
