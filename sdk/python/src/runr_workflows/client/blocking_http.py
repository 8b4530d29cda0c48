"""HTTP for the blocking client: connections of the standard library, kept for the next request of any thread."""

from __future__ import annotations

import http.client
import os
import select
import ssl
import threading

from .errors import ApiUnreachable
from .exchange import Reply, Request
from .settings import ClientSettings

MOST_IDLE = 16


class BlockingHttp:
    """Requests to one server. Threads may share it; in a forked child it begins anew."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._tls = ssl.create_default_context() if settings.is_tls else None
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def exchange(self, request: Request) -> Reply:
        """The answer to a request. Raises ApiUnreachable."""
        connection = self._connection(request)
        try:
            connection.request(request.method, request.target, request.body, dict(request.headers))
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ApiUnreachable(f"{_place(self._settings)}: {_reason(error)}", was_sent=True) from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection, response)
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, body)

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connection(self, request: Request) -> http.client.HTTPConnection:
        while not request.is_fresh:
            with self._lock:
                if self._pid != os.getpid():
                    self._pid, self._idle = os.getpid(), []  # they are the parent's
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                break
            if not _is_stale(connection):
                connection.sock.settimeout(request.timeout_s)
                return connection
            connection.close()
        return self._connected(request.timeout_s)

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._settings.host, self._settings.port
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ApiUnreachable(f"{_place(self._settings)}: {_reason(error)}", was_sent=False) from error
        return connection

    def _keep(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        with self._lock:
            if not response.will_close and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has closed a connection, or has sent what nobody asked for."""
    if connection.sock is None:
        return True
    if not hasattr(select, "poll"):  # Windows, where select takes any number of a socket
        return bool(select.select([connection.sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLERR | select.POLLHUP)
    return bool(poll.poll(0))


def _place(settings: ClientSettings) -> str:
    return f"{settings.host}:{settings.port}"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__
