"""What a server says about where it listens, or why it cannot."""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping, Sequence

from ..errors import SettingsError
from ..shown import shown

PORT_VARIABLE = "PORT"
DEFAULT_PORT = 8000
"""Not 8080, where the engine listens by default."""


def port_of(given: object, environ: Mapping[str, str]) -> int:
    """The port to serve on: what is given, else the variable PORT, else 8000. Raises SettingsError."""
    name, value = "port", given
    if given is None:
        name, text = PORT_VARIABLE, environ.get(PORT_VARIABLE, "").strip() or str(DEFAULT_PORT)
        value = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else text
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65_535:
        raise SettingsError(f"{name}: a port from 0 to 65535, not {shown(value)}")
    return value


def announce(names: Sequence[str], host: str, port: int) -> None:
    """One line on stderr names the workflows and the address, whatever the process does with its logs."""
    listed = f"workflows {', '.join(names)}" if names else "no workflows"
    print(f"serving {listed} on {_address(host, port)}", file=sys.stderr, flush=True)


def cannot_listen(error: OSError, host: str, port: int) -> str:
    """One sentence that says what to do."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is taken by another process: give wf.serve() another port, or set PORT"
    return f"cannot listen on port {port} of {host}: {error.strerror or error}"


def _address(bound: str, port: int) -> str:
    """As a URL that can be opened on this machine."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound)  # noqa: S104
    host = here or bound
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    return url if here is None else f"all interfaces, {url}"
