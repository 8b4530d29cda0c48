"""`wf.serve()` of async workflows: the server on a loop of its own, until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import signal
import threading
from collections.abc import Callable, Sequence

from .listening import announce, cannot_listen
from .loop_server import Handle, LoopServer

_log = logging.getLogger("runr_workflows")


def serve_on_loop(handle: Handle, names: Sequence[str], host: str, port: int, grace: float) -> None:
    """Serves until SIGTERM or SIGINT (in the main thread; elsewhere until the process ends).

    If it cannot listen, it raises SystemExit with one sentence; outside the main thread, where that would be silent,
    OSError.
    """
    is_main = threading.current_thread() is threading.main_thread()
    server = LoopServer(handle, host, port, grace=grace)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        loop = runner.get_loop()
        serving = loop.create_task(serve_until_cancelled(server, names))
        numbers = (signal.SIGTERM, signal.SIGINT) if is_main else ()
        with contextlib.suppress(NotImplementedError):  # where loops have no signals, Ctrl-C just interrupts
            for number in numbers:
                loop.add_signal_handler(number, serving.cancel)
        try:
            _run(loop, serving)
        except OSError as error:
            sentence = cannot_listen(error, host, port)
            raise (SystemExit(sentence) if is_main else OSError(error.errno, sentence)) from None


async def serve_until_cancelled(server: LoopServer, names: Sequence[str]) -> None:
    """Serves; the first cancellation lets requests in flight finish. Raises OSError where it cannot listen."""
    async with server:
        announce(names, server.host, server.port)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        _log.info("stopping: finishing requests in flight, for at most %s s", server.grace)
        if not await server.stop():
            _log.warning("requests in flight were cut off after %s s; the engine will make them again", server.grace)


def _run(loop: asyncio.AbstractEventLoop, serving: asyncio.Task[None]) -> None:
    while True:
        try:
            return loop.run_until_complete(serving)
        except SystemExit:
            if serving.done():
                raise
            _log.exception("a task asked the process to exit; only the task ends")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """That of uvloop, where it is installed: it halves what a request costs outside of the workflow."""
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return asyncio.new_event_loop
    return factory
