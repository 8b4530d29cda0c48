"""An API by script, and both clients that ask it."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

from runr_workflows.client import AsyncClient, Client

Scripted = bytes | None
"""What is answered to a request; None: the connection is closed without an answer."""


def answer(content: Any, status: str = "200 OK", headers: str = "") -> bytes:
    body = json.dumps(content).encode()
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def problem(status: str, code: str = "conflict", headers: str = "") -> bytes:
    errors = [{"path": "events[0].name", "message": "bad"}, {"path": "", "message": "worse"}]
    return answer(
        {"type": f"https://x/problems/{code}", "title": "t", "detail": "told", "errors": errors, "trace_id": "abc"},
        status,
        headers,
    )


SENT = {"id": "01J", "name": "a", "duplicate": False, "runs": [], "resumed": 0, "cancelled": 0}
RUN = {"id": "01R", "status": "queued"}


class Server:
    """Answers by script, one connection after another, and keeps the requests."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.script: list[Scripted] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http{'' if tls is None else 's'}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._tls = tls
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                return
            self._open.append(connection)
        stream = connection.makefile("rb")
        try:
            while first := stream.readline():
                method, target, _ = first.decode().split(" ")
                headers: dict[str, str] = {}
                while (line := stream.readline().decode().strip()) != "":
                    name, _, value = line.partition(": ")
                    headers[name.lower()] = value
                body = stream.read(int(headers.get("content-length", 0)))
                self.requests.append((method, target, headers, json.loads(body) if body else None))
                scripted = self.script.pop(0)
                if scripted is None:
                    return
                connection.sendall(scripted)
                if b"connection: close" in scripted.lower():
                    return
        except OSError:
            return
        finally:
            stream.close()
            connection.close()


Ask = Callable[[Any], Any]


class Both:
    """Does the same with the blocking and the async client."""

    def __init__(self, kind: type[Any], server: Server) -> None:
        self.kind = kind
        self._url = server.url

    def ask(self, *asks: Ask, **options: Any) -> list[Any]:
        """What each of the calls answers, or the error that it raises."""
        options = {"url": self._url, "token": "secret", **options}
        return asyncio.run(self._asked(asks, options)) if self.kind is AsyncClient else self._asked_sync(asks, options)

    async def _asked(self, asks: Any, options: Any) -> list[Any]:
        found: list[Any] = []
        async with AsyncClient(**options) as client:
            for ask in asks:
                try:
                    made = ask(client)
                    if inspect.isasyncgen(made):
                        found.append([each async for each in made])
                    else:
                        found.append(await made)
                except Exception as error:
                    found.append(error)
        return found

    def _asked_sync(self, asks: Any, options: Any) -> list[Any]:
        found: list[Any] = []
        with Client(**options) as client:
            for ask in asks:
                try:
                    made = ask(client)
                    found.append(list(made) if inspect.isgenerator(made) else made)
                except Exception as error:
                    found.append(error)
        return found
