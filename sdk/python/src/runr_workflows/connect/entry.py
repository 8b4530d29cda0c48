"""The ways into a connection: its parts put together, and a loop of its own for `wf.connect()`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from uuid import uuid4

from ..definition import Workflow
from ..hooks import Hooks
from ..protocol import introspect_answer
from .connection import Connection
from .handshake import Introduction
from .session import Session
from .settings import WorkerSettings
from .starting import Starter

_log = logging.getLogger("runr_workflows")


def make_connection(
    workflows: Mapping[str, Workflow],
    settings: WorkerSettings,
    *,
    capture_input: bool,
    threads: int,
    hooks: Hooks | None = None,
    tells_coming_and_going: bool = True,
) -> Connection:
    """A connection of a new session, not entered yet. Options as of `Connection`."""
    definitions = introspect_answer([workflow.definition for workflow in workflows.values()])
    introduction = Introduction(settings.tenant, settings.project, str(uuid4()), definitions, settings.code_version)
    return Connection(
        settings.target,
        introduction,
        settings.keys,
        lambda: Session(
            Starter(workflows, capture_input=capture_input, threads=threads, hooks=hooks),
            max_concurrency=settings.max_concurrency,
        ),
        drain_s=settings.drain_s,
        jitter=random.Random(),  # noqa: S311  # spreads reconnects, guards nothing
        tells_coming_and_going=tells_coming_and_going,
    )


def run_until_stopped(make: Callable[[], Connection], connected: Callable[[], None]) -> None:
    """Connects on a loop of its own until SIGTERM or SIGINT (in the main thread), then leaves; the second cuts off."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        main = loop.create_task(_serve(make(), connected))
        while not main.done():
            try:
                loop.run_until_complete(main)
            except SystemExit:
                if main.done():
                    raise
                _log.exception("a task asked the process to exit; only the task ends")


async def _serve(connection: Connection, connected: Callable[[], None]) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    loop = asyncio.get_running_loop()
    signals = iter((connection.stop, connection.cut_off))

    def on_signal() -> None:
        if connection.is_connected:
            action = next(signals, connection.cut_off)
            what = "leaving: what is executed may end" if action == connection.stop else "cut off"
            print(f"{what} ({connection.target})", file=sys.stderr, flush=True)
            action()
        else:
            serving.cancel()

    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    with contextlib.suppress(NotImplementedError):  # where loops have no signals, Ctrl-C just interrupts
        for number in numbers:
            loop.add_signal_handler(number, on_signal)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            async with connection:
                connected()
                await connection.wait()
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in numbers:
                loop.remove_signal_handler(number)
