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
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from services.cli.fork_server import show_arguments

MOST_BYTES = 1 << 17
"""The longest packet."""

_GIVEN = 4  # descriptors that come with a request
_LOADED = (
    *(f"services.{service}.app" for service in ("ingest", "scheduler", "executor", "gateway")),
    *("services.cli.main", "services.cli.api", "services.cli.runs.command"),
)


class ForkServer:
    """Forks on request, and tells of each child how it has ended."""

    def __init__(self, control: socket.socket, others: socket.socket) -> None:
        self._control = control
        self._others = others
        self._told: dict[int, int] = {}
        """Pid → where its exit code goes."""
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def serve(self) -> dict[str, Any] | None:
        """Returns in each child, with what was asked of it, and with None when nobody holds the other end any more."""
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
                        asked = self._fork(connection)
                elif self._control.fileno() in ready:
                    if not self._control.recv(1, socket.MSG_PEEK):
                        return None
                    asked = self._fork(self._control)
                if asked is not None:
                    return asked

    def _fork(self, asking: socket.socket) -> dict[str, Any] | None:
        """In the child, what is asked of it. Whoever asks nothing gets nothing."""
        packet, fds, _, _ = socket.recv_fds(asking, MOST_BYTES, _GIVEN)
        if not packet:
            return None
        pid = os.fork()
        if pid == 0:
            self._become_child(fds)
            asked: dict[str, Any] = json.loads(packet)
            return asked
        *stdio, self._told[pid] = fds
        for fd in stdio:
            os.close(fd)
        asking.send(json.dumps({"pid": pid}).encode())
        return None

    def _become_child(self, fds: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        self._others.close()
        os.setsid()
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
        for fd in (*fds, *self._told.values(), self._woken, self._waker):
            os.close(fd)

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
    os.environ.clear()
    os.environ.update(asked["environ"])
    os.chdir(asked["cwd"])
    _open_streams()
    sys.argv = [asked["module"], *asked["arguments"]]
    show_arguments([sys.executable, "-P", "-m", *sys.argv])
    if not hasattr(sys.modules.get(asked["module"]), "__path__"):
        sys.modules.pop(asked["module"], None)  # it is run, not imported, as `python -m` warns who mistakes the two
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run(socket.socket(fileno=int(sys.argv[1])), socket.socket(fileno=int(sys.argv[2])))
