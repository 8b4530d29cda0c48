"""`wf.serve()`: an HTTP/1.1 server from the standard library, a thread per connection, with a graceful stop.

Behind a public address it belongs behind a proxy or function platform, as any such server does: an idle connection
holds a thread for `TIMEOUT_S`.
"""

from __future__ import annotations

import logging
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Self

from ..protocol import error_answer
from .http1 import HttpFault, answer
from .listening import announce, cannot_listen
from .request_reader import Request, RequestReader

Handle = Callable[[bytes, Mapping[str, str]], tuple[int, bytes]]

TIMEOUT_S = 300.0
"""How long a connection may be idle or a client silent in the middle of a request."""

_LINGER_S = 2.0
_RECEIVE_BYTES = 256 * 1024

_log = logging.getLogger("runr_workflows")


class Server:
    """A server on a port of its own, 0 for a free one. Use it as a context manager, or `serve` for a whole process."""

    def __init__(self, handle: Handle, host: str, port: int) -> None:
        self._tcp = _TcpServer(handle, host, port)
        self.host, self.port = str(self._tcp.server_address[0]), self._tcp.server_address[1]
        self._acceptor = threading.Thread(
            target=self._tcp.serve_forever, kwargs={"poll_interval": 0.05}, name="runr-accept", daemon=True
        )

    def start(self) -> None:
        """Accepts connections in a thread."""
        self._acceptor.start()

    def stop(self, grace: float = 30) -> bool:
        """Accepts nothing more, closes idle connections, finishes requests in flight.

        Returns whether all of them ended within `grace` seconds.
        """
        if self._acceptor.is_alive():
            self._tcp.shutdown()
            self._acceptor.join()
        self._tcp.server_close()
        return self._tcp.drain(grace)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


def serve(handle: Handle, names: Sequence[str], host: str, port: int, grace: float) -> None:
    """Serves until SIGTERM or SIGINT (in the main thread; elsewhere until the process ends).

    One line on stderr names the workflows and the address, whatever the process does with its logs. If it cannot
    listen, it raises SystemExit with one sentence; outside the main thread, where that would be silent, OSError.
    """
    stopping = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stopping.set()

    main = threading.current_thread() is threading.main_thread()
    try:
        server = Server(handle, host, port)
    except OSError as error:
        sentence = cannot_listen(error, host, port)
        raise (SystemExit(sentence) if main else OSError(error.errno, sentence)) from None
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT) if main}
    try:
        server.start()
        announce(names, server.host, server.port)
        stopping.wait()
        _log.info("stopping: finishing requests in flight, for at most %s s", grace)
        if not server.stop(grace):
            _log.warning("requests in flight were cut off after %s s; the engine will make them again", grace)
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class _TcpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, handle: Handle, host: str, port: int) -> None:
        self.handle_body = handle
        self.draining = False
        self.connections: set[_Connection] = set()
        self.changed = threading.Condition()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Connection)

    def drain(self, grace: float) -> bool:
        deadline = time.monotonic() + grace
        with self.changed:
            self.draining = True
            for connection in self.connections:
                connection.wake_if_idle()
            return self.changed.wait_for(lambda: not self.connections, max(0.0, deadline - time.monotonic()))

    def handle_error(self, request: object, client_address: object) -> None:
        _log.exception("a connection failed")


class _Connection(socketserver.BaseRequestHandler):
    """The requests of one connection, one after another."""

    request: socket.socket
    server: _TcpServer

    def setup(self) -> None:
        self._reader = RequestReader()
        self._idle = True
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request.settimeout(TIMEOUT_S)
        with self.server.changed:
            self.server.connections.add(self)
            if self.server.draining:
                self.wake_if_idle()

    def finish(self) -> None:
        with self.server.changed:
            self.server.connections.discard(self)
            self.server.changed.notify_all()

    def wake_if_idle(self) -> None:
        """Ends the wait for the next request; one that has arrived already is still read and answered."""
        if self._idle:
            try:
                self.request.shutdown(socket.SHUT_RD)
            except OSError:
                _log.debug("the client closed its connection first")

    def handle(self) -> None:
        try:
            while self._exchange():
                pass
        except (TimeoutError, ConnectionError):
            _log.debug("a client went away or was silent for too long")

    def _exchange(self) -> bool:
        """Answers one request; whether another may follow."""
        try:
            request = self._next()
            if request is None:
                return False
            status, body = self.server.handle_body(request.body, request.head.headers)
        except HttpFault as fault:
            if fault.status != 405:  # a browser or a health check, not the engine
                _log.warning("a request was refused with %s: %s", fault.status, fault)
            asked = {} if self._reader.head is None else self._reader.head.headers
            self.request.sendall(answer(fault.status, error_answer(str(fault)), asked, keep_alive=False))
            self._linger()
            return False
        keep_alive = request.head.keep_alive and not self.server.draining
        self.request.sendall(answer(status, body, request.head.headers, keep_alive=keep_alive))
        return keep_alive

    def _next(self) -> Request | None:
        """None at the end of the connection."""
        while (request := self._reader.next()) is None:
            if self._reader.wants_continue:
                self._reader.wants_continue = False
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            with self.server.changed:
                self._idle = self._reader.is_idle
                if self.server.draining:
                    self.wake_if_idle()
            data = self.request.recv(_RECEIVE_BYTES)
            if not data and self._idle:
                return None
            if not data:
                raise ConnectionResetError("the client closed in the middle of a request")
            self._idle = False
            self._reader.feed(data)
        self._idle = False
        return request

    def _linger(self) -> None:
        """Takes what the client still sends, for a moment, so that it can read the answer before the reset."""
        self.request.shutdown(socket.SHUT_WR)
        self.request.settimeout(_LINGER_S)
        deadline = time.monotonic() + _LINGER_S
        while time.monotonic() < deadline and self.request.recv(_RECEIVE_BYTES):
            pass
