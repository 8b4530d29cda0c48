"""How a service module becomes a process.

`services/<name>/app.py` is the composition root of a service and offers two names:

    @dataclass(frozen=True)
    class Settings: ...                                                # built by `config.load` from the environment

    def build(settings: Settings, runtime: Runtime) -> list[Component]     # constructs, opens nothing

Everything that needs I/O is opened by `Component.start`, in the order of the list.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from services.core.runtime.clock import Clock, SystemClock
from services.core.runtime.config import ConfigError, describe, load
from services.core.runtime.exposition import Exposition
from services.core.runtime.garbage import look_for_cycles_seldom
from services.core.runtime.health import Health
from services.core.runtime.health_server import HealthServer
from services.core.runtime.lifecycle import STOP_TIMEOUT_S, Component, StartRefused, Supervisor
from services.core.runtime.logs import configure_logs
from services.core.runtime.loop_lag import watch_loop
from services.core.runtime.metrics import Metrics
from services.core.runtime.open_files import allow_open_files
from services.core.runtime.parent import on_parent_death
from services.core.runtime.parse import Address
from services.core.runtime.pooled_random import PooledRandom
from services.core.runtime.process_slot import health_socket, process_slot
from services.core.runtime.settings import HEALTH_PORTS, LogSettings, ProcessSettings, TelemetrySettings
from services.core.runtime.supervised import UNSUPERVISED, SupervisedProcess, supervised_process
from services.core.runtime.telemetry import Telemetry, start_telemetry

log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
_ORPHAN_GRACE_S = 5.0
_FORCE_MARGIN_S = 10.0


@dataclass(frozen=True)
class Runtime:
    """What the process gives every service: its name and the seams for time, random, readiness, traces and metrics.

    `slot`: which of several processes under one parent it is, None for one that is alone. `supervised`: what a
    supervisor says of it.
    """

    service: str
    clock: Clock
    random: random.Random
    health: Health
    telemetry: Telemetry
    slot: int | None = None
    supervised: SupervisedProcess = UNSUPERVISED
    metrics: Metrics = field(default_factory=Metrics)


class ServiceModule(Protocol):
    """The shape of `services.<name>.app`."""

    Settings: type[Any]

    def build(self, settings: Any, runtime: Runtime) -> Sequence[Component]:
        """The components of the service, lowest dependency first."""
        ...


@dataclass(frozen=True)
class _BaseSettings:
    process: ProcessSettings
    logs: LogSettings
    telemetry: TelemetrySettings


def run_service(modules: Mapping[str, ServiceModule], environ: Mapping[str, str]) -> int:
    """Runs one service, or several in one process, until a signal. The exit code: 0, 1 failed, 2 bad settings."""
    title = next(iter(modules)) if len(modules) == 1 else "all"
    try:
        base = load(_BaseSettings, environ)
        settings = {name: load(module.Settings, environ) for name, module in modules.items()}
    except ConfigError as error:
        for fault in error.faults:
            sys.stderr.write(f"runr {title}: {fault}\n")
        return EXIT_USAGE
    configure_logs(title, base.logs, slot=process_slot(environ))
    for chosen in (base, *settings.values()):
        log.info("settings", extra=describe(chosen))
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_run(title, modules, settings, base, environ))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where the platform has it, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(
    title: str,
    modules: Mapping[str, ServiceModule],
    settings: Mapping[str, Any],
    base: _BaseSettings,
    environ: Mapping[str, str],
) -> int:
    health = Health()
    traces = {name: start_telemetry(name, base.telemetry) for name in modules}
    counted = {name: Metrics(name) for name in modules}
    components: list[Component] = []
    for name, module in modules.items():
        runtime = Runtime(
            service=name,
            clock=SystemClock(),
            random=PooledRandom(),
            health=health if len(modules) == 1 else health.part(name),
            telemetry=traces[name],
            slot=process_slot(environ),
            supervised=supervised_process(environ),
            metrics=counted[name],
        )
        components.extend(module.build(settings[name], runtime))
    supervisor = Supervisor(
        components, health=health, grace_s=base.process.grace_s, drain_delay_s=base.process.drain_delay_s
    )
    address = base.process.health or Address("127.0.0.1", HEALTH_PORTS.get(title, 7200))
    metrics = Exposition(list(counted.values()))
    server = HealthServer(health, address, title, listener=health_socket(environ), metrics=metrics.text)
    _listen_for_stop(supervisor, base.process.grace_s, environ)
    look_for_cycles_seldom()
    log.info("limits", extra={"open_files": allow_open_files()})
    # One loop serves them all: it is counted once.
    watching = asyncio.create_task(watch_loop(next(iter(counted.values()))), name="loop-lag")
    try:
        await server.start()
        return await supervisor.run()
    except (StartRefused, OSError) as error:
        # A wrong password, a taken port: where it happened in our code helps nobody.
        log.error("start failed: %s", error)
        return EXIT_FAILED
    except Exception:
        log.exception("start failed")
        return EXIT_FAILED
    finally:
        watching.cancel()
        await server.stop()
        for telemetry in traces.values():
            await asyncio.to_thread(telemetry.close)


def _listen_for_stop(supervisor: Supervisor, grace_s: float, environ: Mapping[str, str]) -> None:
    """Drains on SIGTERM, SIGINT, and, when a parent holds our stdin as a pipe, on the parent's death."""
    loop = asyncio.get_running_loop()

    def stop_on(number: signal.Signals) -> None:
        _force_after(grace_s)
        supervisor.request_stop(number.name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_on, number)
    orphan_grace_s = min(grace_s, _ORPHAN_GRACE_S)

    def orphaned() -> None:
        _force_after(orphan_grace_s)
        with suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(partial(supervisor.request_stop, "the parent is gone", grace_s=orphan_grace_s))

    on_parent_death(environ, orphaned)


def _force_after(grace_s: float) -> None:
    """Ends the process by a thread when the drain has not: a loop that hangs cannot run its own timeout."""
    watchdog = threading.Timer(grace_s + STOP_TIMEOUT_S + _FORCE_MARGIN_S, os._exit, args=(EXIT_FAILED,))
    watchdog.daemon = True
    watchdog.start()
