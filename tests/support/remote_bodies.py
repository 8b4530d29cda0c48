"""Bodies of workers in processes of their own: executed in the process of the test, which sees and holds them.

A worker asks over a socket, one JSON object a line: `{"call": "record", "arguments": [run, step]}`; the answer is the
result. It waits for as long as the test holds the body, unless it dies meanwhile.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.workflow_app import Bodies

BODIES_VARIABLE = "TEST_BODIES"
"""Where a worker asks: host and port."""


class RemoteBodies(Bodies):
    """The bodies of a worker process. Each thread has a connection of its own."""

    def __init__(self, address: str) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._own = threading.local()

    def record(self, run: str, step: str) -> None:
        """See `Bodies.record`."""
        self.ask("record", run, step)

    def of(self, run: str) -> Counter[str]:
        """See `Bodies.of`: of all processes."""
        return Counter(self.ask("of", run))

    def ask(self, call: str, *arguments: Any) -> Any:
        """Have something done in the process of the test."""
        if not hasattr(self._own, "connection"):
            self._own.connection = socket.create_connection(self._address).makefile("rwb")
        connection = self._own.connection
        connection.write(json.dumps({"call": call, "arguments": arguments}).encode() + b"\n")
        connection.flush()
        return json.loads(connection.readline())


@contextmanager
def answering(bodies: Bodies, **calls: Callable[..., Any]) -> Iterator[str]:
    """Answer what workers ask, in threads: `record`, `of`, and these calls. The value is the address."""
    known: Mapping[str, Callable[..., Any]] = {"record": bodies.record, "of": bodies.of, **calls}

    class Asked(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # a worker that was killed
                for line in self.rfile:
                    asked = json.loads(line)
                    result = known[asked["call"]](*asked["arguments"])
                    self.wfile.write(json.dumps(result).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Asked) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        serving.start()
        try:
            host, port = server.server_address[:2]
            yield f"{host!s}:{port}"
        finally:
            server.shutdown()
            serving.join()
