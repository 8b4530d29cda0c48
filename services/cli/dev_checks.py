"""What `runr dev` looks at before it starts services that would only end again: its folder, and the settings given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from services.cli.addresses import free_address
from services.cli.failure import Failure
from services.core.runtime.config import ConfigError, load
from services.core.runtime.service import EXIT_USAGE
from services.core.runtime.settings import DatabaseSettings, ListenSettings, NatsSettings, PeerSettings
from services.embedded.home import Home

_OTHER_HOME = "RUNR_HOME may name another"
# The services of a stack that was killed hold their addresses until they have drained.
_ADDRESS_S = 6.0


@dataclass(frozen=True)
class _Given:
    database: DatabaseSettings
    nats: NatsSettings
    listen: ListenSettings
    peers: PeerSettings


def check_home(home: Home) -> None:
    """Makes the folder, if it is missing. Raises Failure."""
    try:
        home.create()
    except OSError as error:
        raise Failure(f"the folder {home.path} cannot be made: {error.strerror or error}; {_OTHER_HOME}") from None
    if not os.access(home.path, os.W_OK | os.X_OK):
        raise Failure(f"the folder {home.path} cannot be written to; {_OTHER_HOME}")


async def check_given(given: Mapping[str, str], environ: Mapping[str, str]) -> None:
    """URLs of servers are URLs, and the addresses that the caller has `given` are free. Raises Failure."""
    try:
        settings = load(_Given, environ)
    except ConfigError as error:
        raise Failure(str(error), EXIT_USAGE) from None
    peers = settings.peers
    addresses = {
        "RUNR_HTTP_ADDR": settings.listen.http,
        "RUNR_INGEST_ADDR": peers.ingest,
        "RUNR_SCHEDULER_ADDR": peers.scheduler,
        "RUNR_EXECUTOR_ADDR": peers.executor,
    }
    for variable, address in addresses.items():
        if given.get(variable):
            try:
                await free_address(address, variable, within_s=_ADDRESS_S)
            except OSError as error:
                raise Failure(str(error)) from None
