"""The installations that somebody works with: where each is and the token for it, kept from one command to the next.

They are in a file that only its owner may read: RUNR_CONFIG, else `runr/contexts.json` in XDG_CONFIG_HOME or
`~/.config`.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from services.cli.failure import Failure
from services.cli.suggest import did_you_mean
from services.core.runtime.service import EXIT_USAGE

DEV = "dev"
"""The name of the stack of `runr dev` in the home, which is in no file."""

_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700
_OTHERS = 0o077
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Context:
    """One installation: the gateway's URL, a token, and what commands mean that name no tenant or project."""

    url: str
    token: str
    tenant: str | None = None
    project: str | None = None


@dataclass(frozen=True)
class Contexts:
    """All of them by their names, and which one is current."""

    path: Path
    named: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Self:
        """Those of the caller. Raises Failure for a file that cannot be read, or that others may read."""
        path = _path(environ)
        try:
            with path.open(encoding="utf-8") as file:
                if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _OTHERS:
                    raise Failure(
                        f"{path} holds tokens, and others may read it: chmod 600 it, and take back the tokens that they"
                        " may have seen",
                        EXIT_USAGE,
                    )
                return cls(path, *_read(json.load(file)))
        except (FileNotFoundError, NotADirectoryError):
            return cls(path)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}", EXIT_USAGE) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Failure(f"{path} is not a file of contexts: remove it, and `runr login` again", EXIT_USAGE) from None

    def get(self, name: str) -> Context:
        """The context of a name. Raises Failure."""
        found = self.named.get(name)
        if found is None:
            raise Failure(
                f"there is no context {name}{did_you_mean(name, [*self.named, DEV])}: `runr contexts list`", EXIT_USAGE
            )
        return found

    def with_context(self, name: str, context: Context) -> Self:
        """With one more, or another of this name, which is then the current one."""
        return replace(self, named={**self.named, name: context}, current=name)

    def without(self, name: str) -> Self:
        """Without one. Raises Failure where it is not there."""
        self.get(name)
        left = {each: context for each, context in self.named.items() if each != name}
        return replace(self, named=left, current=None if self.current == name else self.current)

    def using(self, name: str) -> Self:
        """With another current one. Raises Failure."""
        if name != DEV:
            self.get(name)
        return replace(self, current=name)

    def save(self) -> None:
        """Write the file, whole or not at all, for its owner alone. Raises Failure."""
        content = {"current": self.current, "contexts": {name: asdict(each) for name, each in self.named.items()}}
        try:
            self.path.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Made for its owner alone from the first moment on.
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".contexts-")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    os.fchmod(file.fileno(), _PRIVATE_FILE)
                    json.dump(content, file, indent=2)
                    file.write("\n")
                Path(temporary).replace(self.path)
            except BaseException:
                with suppress(FileNotFoundError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            raise Failure(f"{self.path}: {error.strerror}") from None


def check_name(name: str) -> str:
    """The name, if a context may have it. Raises Failure."""
    if name == DEV:
        raise Failure(f"{DEV} is the stack of `runr dev` in the current folder: choose another --name", EXIT_USAGE)
    if not _NAME.fullmatch(name):
        raise Failure(f"--name {name}: letters, digits, `.`, `_` and `-`, at most 64", EXIT_USAGE)
    return name


def _path(environ: Mapping[str, str]) -> Path:
    if environ.get("RUNR_CONFIG"):
        return Path(environ["RUNR_CONFIG"])
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else _home(environ) / ".config") / "runr" / "contexts.json"


def _home(environ: Mapping[str, str]) -> Path:
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path.home()
    except RuntimeError:
        raise Failure("there is no home folder: set RUNR_CONFIG to a file", EXIT_USAGE) from None


def _read(content: Any) -> tuple[dict[str, Context], str | None]:
    named = {
        str(name): Context(
            url=str(each["url"]), token=str(each["token"]), tenant=each.get("tenant"), project=each.get("project")
        )
        for name, each in content["contexts"].items()
    }
    current = content["current"]
    return named, current if current is None else str(current)
