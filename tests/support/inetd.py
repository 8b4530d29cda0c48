"""Starts a program for each connection, with the connection as its stdin and stdout, as inetd does."""

from __future__ import annotations

import socketserver
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def inetd(
    command: Sequence[str], environ: Mapping[str, str], *, cwd: Path | None = None
) -> Iterator[tuple[str, list[bytes]]]:
    """The URL of the program, and what it has written to stderr, a piece for each connection that it had words for."""
    said: list[bytes] = []

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection = self.request.fileno()
            done = subprocess.run(
                command, stdin=connection, stdout=connection, stderr=subprocess.PIPE, env=environ, cwd=cwd
            )
            if done.stderr:
                said.append(done.stderr)

    class Server(socketserver.ThreadingTCPServer):
        request_queue_size = 64

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", said
        finally:
            server.shutdown()
            thread.join()
