"""The server of async workflows, on a loop in a thread of its own, to be used like the threaded one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

from runr_workflows.serving.loop_server import Handle, LoopServer


class LoopThread:
    """A `LoopServer` that can be started and stopped from outside of its loop."""

    def __init__(
        self,
        handle: Handle,
        host: str,
        port: int,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._loop = loop_factory()
        self._server = LoopServer(handle, host, port)
        self._thread = threading.Thread(target=self._loop.run_forever)

    @property
    def port(self) -> int:
        return self._server.port

    def start(self) -> None:
        self._thread.start()
        self._do(self._server.__aenter__()).result(5)

    def stop(self, grace: float = 30) -> bool:
        if self._loop.is_closed():
            return True
        self._server.grace = grace
        ended: bool = self._do(self._server.stop()).result(grace + 5)
        self._do(asyncio.sleep(0)).result(5)  # what was closed or cancelled just now goes
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        return ended

    def _do(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
