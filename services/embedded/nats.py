"""nats-server as a child process, with JetStream. Loopback and a random password only."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

from services.embedded.identity import OURSELVES
from services.embedded.server import ServerFailed, ServerProcess, clear_orphans

USER = "runr"

_START_S = 20.0


class NatsServer:
    """One server with its store in `folder`."""

    name = "nats"

    def __init__(self, binary: Path, folder: Path, *, port: int, password: str) -> None:
        self._binary = binary
        self._folder = folder
        self._port = port
        self._password = password
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """The URL of the server, with the password."""
        return f"nats://{USER}:{self._password}@127.0.0.1:{self._port}"

    @property
    def process(self) -> ServerProcess:
        """The running server."""
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Returns when the server greets. Raises ServerFailed."""
        self._folder.mkdir(exist_ok=True)
        await self.clear_leftovers(self._folder)
        config = self._write_config()
        process = self._process = ServerProcess(
            self.name,
            folder=self._folder,
            identity=OURSELVES,
            polite=signal.SIGTERM,
            firm=signal.SIGQUIT,
            patience_s=10.0,
        )
        await process.spawn([self._binary, "-c", config], cwd=self._folder, env={"PATH": os.defpath})
        try:
            async with asyncio.timeout(_START_S):
                while not await self._greets():
                    process.check_alive()
                    await asyncio.sleep(0.01)
        except (TimeoutError, ServerFailed) as error:
            await process.stop()
            raise ServerFailed(str(error) or f"nats-server was not ready within {_START_S:g} s") from error

    @staticmethod
    async def clear_leftovers(folder: Path) -> None:
        """Ends what a killed keeper left running in `folder`."""
        await clear_orphans(folder, signal.SIGTERM)

    async def stop(self) -> None:
        """Stops the server; streams are kept."""
        if self._process is not None:
            await self._process.stop()

    def _write_config(self) -> Path:
        """A file, because arguments are visible to everybody on the machine."""
        config = {
            "server_name": "runr",
            "host": "127.0.0.1",
            "port": self._port,
            "jetstream": {"store_dir": str(self._folder / "store")},
            "authorization": {"user": USER, "password": self._password},
        }
        path = self._folder / "nats.conf"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(config, file)
        return path

    async def _greets(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        try:
            return (await reader.readline()).startswith(b"INFO ")
        finally:
            writer.close()
