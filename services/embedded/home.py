"""The data folder of a local stack: `.runr` in the current folder, or RUNR_HOME.

It keeps the ports that were chosen and the passwords that were made, so a restart finds everything where it was and two
folders never meet. A lock makes sure that one stack at a time uses it; the lock falls with its process.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Any

# Below the range that systems hand out for outgoing connections, so a chosen port is not taken in passing.
PORTS = range(20_000, 32_000)
_PRIVATE = 0o600
# Others may pass through to a server's own folder, but not list.
_PASSABLE = 0o711


class HomeInUse(Exception):
    """Another stack runs in the folder; the text names its process."""


class Home:
    """The folder and what it remembers. New ports are chosen from `ports`."""

    def __init__(self, path: Path, ports: range = PORTS) -> None:
        self.path = path
        self._ports = ports
        self._lock_fd: int | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Home:
        """The folder that RUNR_HOME names, else `.runr` in the current folder."""
        return cls(Path(environ.get("RUNR_HOME") or ".runr").resolve())

    def create(self) -> None:
        """Makes the folder if it is missing; an existing one keeps its permissions."""
        if not self.path.is_dir():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(exist_ok=True)
            self.path.chmod(_PASSABLE)

    def lock(self, owner: int) -> None:
        """Takes the folder for process `owner`. Raises HomeInUse when another has it."""
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, _PRIVATE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise HomeInUse(
                f"a stack already runs in {self.path} (process {holder}); stop it, or set RUNR_HOME to another folder"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{owner}\n".encode(), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        """Gives the folder back; a second call does nothing."""
        fd, self._lock_fd = self._lock_fd, None
        if fd is not None:
            os.close(fd)

    def port(self, name: str, preferred: int | None = None) -> int:
        """The remembered port of `name`; when it is new or taken by a stranger, a free one, remembered from now on."""
        ports: dict[str, int] = self._read("ports.json")
        known = ports.get(name, preferred)
        if known is None or not is_free(known):
            known = _free_port(self._ports, taken=set(ports.values()))
        if ports.get(name) != known:
            self._write("ports.json", {**ports, name: known})
        return known

    def secret(self, name: str) -> str:
        """The remembered random text of `name`, made at the first call."""
        return self._remembered_secret(name, lambda: secrets.token_urlsafe(24))

    def key(self, name: str) -> str:
        """The remembered 256-bit key of `name` as base64, made at the first call."""
        return self._remembered_secret(name, lambda: base64.b64encode(secrets.token_bytes(32)).decode())

    def remember(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a JSON file that only we can read."""
        self._write(name, content)

    def recall(self, name: str) -> dict[str, Any]:
        """What `remember` wrote, {} when there is nothing."""
        return self._read(name)

    def forget(self, name: str) -> None:
        """Removes what `remember` wrote, if anything."""
        (self.path / name).unlink(missing_ok=True)

    def _remembered_secret(self, name: str, make: Any) -> str:
        known: dict[str, str] = self._read("secrets.json")
        if name not in known:
            known[name] = make()
            self._write("secrets.json", known)
        return known[name]

    def _read(self, name: str) -> dict[str, Any]:
        try:
            loaded = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return {}
        return dict(loaded)

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        # Through a second file, so a crash leaves the old content or the new, never half of it.
        temporary = self.path / f"{name}.new"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with os.fdopen(fd, "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)


@contextmanager
def temporary_folder(purpose: str, parent: Path | None = None) -> Iterator[Path]:
    """A folder for a throw-away home, gone afterwards; in the system's temp folder unless `parent` is named."""
    folder = Path(tempfile.mkdtemp(prefix=f"runr-{purpose}-", dir=parent))
    # mkdtemp is private, and a Postgres started by root is another user.
    folder.chmod(_PASSABLE)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _free_port(ports: range, taken: set[int]) -> int:
    random = SystemRandom()
    for _ in range(200):
        port = random.choice(ports)
        if port not in taken and is_free(port):
            return port
    raise OSError(f"no free port between {ports.start} and {ports.stop}")
