"""The supervisor's side of the fork server: children that begin with everything imported (`fork_server.py`).

Where it cannot be had (another system, no pid descriptors), or when it has been killed, children are started the usual
way. Those that it has forked live on without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence

from services.cli.child_process import ChildProcess, exec_child
from services.core.runtime.parent import PARENT_PIPE
from services.core.runtime.python_child import python_command, python_environ

log = logging.getLogger(__name__)

_OURS = tuple(python_command("services.cli.main"))
_FORK_S = 30.0
_TOLD_S = 1.0
_MOST_BYTES = 1 << 17
_KILLED = -signal.SIGKILL


class ForkServerGone(Exception):
    """The fork server has ended, or was never there."""


class ForkedChild:
    """A process that the fork server has forked for us. See `ChildProcess`."""

    def __init__(self, pid: int, handle: int, stdin: int) -> None:
        """`handle` is its pid descriptor, `stdin` our end of its pipe; both are closed when it has ended."""
        self._pid = pid
        self._handle = handle
        self._stdin = stdin
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        loop.add_reader(handle, self._is_over)

    @property
    def pid(self) -> int:
        """See `ChildProcess`."""
        return self._pid

    @property
    def returncode(self) -> int | None:
        """See `ChildProcess`."""
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        """See `ChildProcess`."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """See `ChildProcess`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """See `ChildProcess`."""
        self._signal(signal.SIGKILL)

    def ended(self, code: int) -> None:
        """It has ended with this code."""
        if self._ended.done():
            return
        self._ended.set_result(code)
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._stdin)
        os.close(self._handle)

    def _is_over(self) -> None:
        """It has ended. How, the fork server tells, unless it hangs or is gone."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._handle)
        loop.call_later(_TOLD_S, self.ended, _KILLED)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, number)


class Forked:
    """Starts children by a fork server, which it starts and, after it was killed, starts again."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._asked: deque[tuple[asyncio.Future[ForkedChild], int]] = deque()
        self._children: dict[int, ForkedChild] = {}
        self._works = False

    def open(self) -> None:
        """Begin to start the server, which imports meanwhile. Does nothing where it cannot be had."""
        if sys.platform != "linux":
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                python_command("services.cli.fork_server", str(theirs.fileno())),
                env=python_environ(self._environ),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours, self._hear)

    async def spawn(self, command: Sequence[str], environ: Mapping[str, str], pass_fds: Sequence[int]) -> ChildProcess:
        """See `Spawn`; forked if it is a `runr` command that inherits nothing."""
        if tuple(command[: len(_OURS)]) == _OURS and not pass_fds:
            try:
                return await self._fork(command[len(_OURS) :], environ)
            except (ForkServerGone, OSError, TimeoutError) as error:
                log.info("not forked", extra={"fault": type(error).__name__})
        return await exec_child(command, environ, pass_fds)

    def close(self) -> None:
        """End the server, after its children. A second call does nothing."""
        self._let_go()

    async def _fork(self, arguments: Sequence[str], environ: Mapping[str, str]) -> ForkedChild:
        if self._control is None:
            raise ForkServerGone
        packet = json.dumps({"arguments": list(arguments), "environ": {**environ, PARENT_PIPE: "1"}}).encode()
        if len(packet) > _MOST_BYTES:
            raise ForkServerGone
        theirs, ours = os.pipe()
        answer: asyncio.Future[ForkedChild] = asyncio.get_running_loop().create_future()
        try:
            try:
                socket.send_fds(self._control, [packet], [theirs])
            finally:
                os.close(theirs)
            self._asked.append((answer, ours))
            async with asyncio.timeout(_FORK_S):
                return await answer
        except BaseException:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().kill()
            else:
                os.close(ours)  # one that is forked too late finds its stdin closed, and ends
            raise

    def _hear(self) -> None:
        assert self._control is not None
        try:
            packet, fds, _, _ = socket.recv_fds(self._control, _MOST_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            packet, fds = b"", []
        if not packet:
            self._lost()
            return
        told = json.loads(packet)
        if "pid" not in told:
            child = self._children.pop(told["ended"], None)
            if child is not None:
                child.ended(told["code"])
            return
        answer, stdin = self._asked.popleft()
        self._works = True
        if answer.done():  # nobody waits for it any more
            os.close(fds[0])
            return
        child = self._children[told["pid"]] = ForkedChild(told["pid"], fds[0], stdin)
        answer.set_result(child)

    def _lost(self) -> None:
        self._let_go()
        self._children.clear()
        log.warning("the fork server has ended")
        if self._works:  # one that never did would not do so now
            self._works = False
            self.open()

    def _let_go(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control)
            control.close()
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.wait()
        while self._asked:
            answer, _ = self._asked.popleft()
            if not answer.done():
                answer.set_exception(ForkServerGone())
