"""Postgres as a child process: initdb once, then start and stop. Loopback TCP and a random password only.

Durability stays on (fsync, full_page_writes, synchronous_commit): the engine refuses a server without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg

from services.embedded.binaries import PostgresBinaries
from services.embedded.identity import Identity, check_program, nobody_can_reach, server_identity
from services.embedded.server import ServerFailed, ServerProcess, clear_orphans, processes_in

log = logging.getLogger(__name__)

USER = "runr"
DATABASE = "runr"

_START_S = 60.0
_STATUS_LINE = 7
_BUILTIN_LOCALE = 17
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # No socket: its path would have to be short and reachable.
    "unix_socket_directories": "",
    "shared_buffers": "256MB",
    "max_connections": "200",
    "max_locks_per_transaction": "256",
    "max_wal_size": "2GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class PostgresServer:
    """One cluster in `folder`."""

    name = "postgres"

    def __init__(self, binaries: PostgresBinaries, folder: Path, *, port: int, password: str) -> None:
        self._binaries = binaries
        self._folder = folder
        self._data = folder / "data"
        self._port = port
        self._password = password
        self._identity: Identity | None = None
        self._process: ServerProcess | None = None

    @property
    def url(self) -> str:
        """The URL of the engine's database, with the password."""
        return self._url(DATABASE)

    def _url(self, database: str) -> str:
        return f"postgresql://{USER}:{self._password}@127.0.0.1:{self._port}/{database}"

    @property
    def process(self) -> ServerProcess:
        """The running server."""
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Returns when the server answers and has the database. Raises ServerFailed or Unreachable."""
        self._folder.mkdir(exist_ok=True)
        identity = self._identity = server_identity(self._folder.parent)
        identity.give(self._folder)
        self._make_binaries_reachable(identity)
        if not self._data.exists():
            await asyncio.to_thread(self._initdb, identity)
        self._check_version()
        await self.clear_leftovers(self._folder)
        self._drop_foreign_pid()
        process = self._process = ServerProcess(
            self.name,
            folder=self._folder,
            identity=identity,
            polite=signal.SIGINT,
            firm=signal.SIGQUIT,
            patience_s=20.0,
        )
        options = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._binaries.bin / "postgres", "-D", self._data, "-p", str(self._port), *options]
        await process.spawn(command, cwd=self._data, env=_environment())
        await self._wait_until_ready(process)
        await self._ensure_database()

    @staticmethod
    async def clear_leftovers(folder: Path) -> None:
        """Ends what a killed keeper or postmaster left running on the cluster in `folder`."""
        await clear_orphans(folder / "data", signal.SIGINT)

    async def stop(self) -> None:
        """Fast shutdown: clients are cut off, what they committed is kept."""
        if self._process is not None:
            await self._process.stop()

    def _make_binaries_reachable(self, identity: Identity) -> None:
        """Copies the installation into the data folder when the server's uid cannot read it where it is."""
        if identity.uid is None:
            return
        program = self._binaries.bin / "postgres"
        if identity.capability is not None:
            # A copy would lie in a home that the uid cannot enter either.
            check_program(program, self._folder.parent)
        elif not nobody_can_reach(program):
            self._binaries = self._binaries.copy_to(self._folder / f"program-{self._binaries.major}")

    def _initdb(self, identity: Identity) -> None:
        # Into a second folder, so that a crash in the middle does not leave half a cluster.
        partial = self._folder / "data.new"
        shutil.rmtree(partial, ignore_errors=True)
        password_file = self._folder / "initial-password"
        fd = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(self._password)
        identity.give(password_file)
        if self._binaries.major >= _BUILTIN_LOCALE:
            locale = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        else:
            locale = ["--locale=C"]
        command: list[str | Path] = [self._binaries.bin / "initdb", "-D", partial, "-U", USER, "-E", "UTF8"]
        try:
            done = subprocess.run(
                [*command, *locale, "--auth=scram-sha-256", f"--pwfile={password_file}", "--no-instructions"],
                cwd=self._folder,
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=identity.preexec(signal.SIGTERM),
            )
        finally:
            password_file.unlink()
        if done.returncode != 0:
            raise ServerFailed(f"initdb ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
        partial.rename(self._data)

    def _check_version(self) -> None:
        found = (self._data / "PG_VERSION").read_text().strip()
        if found != str(self._binaries.major):
            raise ServerFailed(
                f"{self._data} was made by Postgres {found}, this is {self._binaries.major}:"
                " set RUNR_POSTGRES_BIN to the former version, or RUNR_HOME to a new folder"
            )

    def _drop_foreign_pid(self) -> None:
        """After a crash the pid in the lock file may belong to a stranger by now, and Postgres would refuse to start.

        Safe only because the home is locked and no process works in the data folder, which only Linux can tell.
        """
        if sys.platform == "linux" and not any(processes_in(self._data)):
            (self._data / "postmaster.pid").unlink(missing_ok=True)

    async def _wait_until_ready(self, process: ServerProcess) -> None:
        try:
            async with asyncio.timeout(_START_S):
                while not self._is_ready():
                    process.check_alive()
                    await asyncio.sleep(0.01)
        except (TimeoutError, ServerFailed) as error:
            await process.stop()
            raise ServerFailed(str(error) or f"Postgres was not ready within {_START_S:g} s") from error

    def _is_ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    async def _ensure_database(self) -> None:
        connection = await asyncpg.connect(self._url("postgres"))
        try:
            if not await connection.fetchval("select 1 from pg_database where datname = $1", DATABASE):
                await connection.execute(f"create database {DATABASE}")
        finally:
            await connection.close()


def _environment() -> dict[str, str]:
    """Nothing of the caller's: PG* variables would steer the server."""
    return {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
