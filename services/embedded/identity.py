"""As whom a server runs.

Postgres refuses to run as root. So for root it runs as uid 65534 with its own folder handed over; no user is added to
the system and nothing outside that folder changes. A folder below a private home cannot be entered by that uid: there,
and only there, the process keeps root's one capability to read and pass where permissions would stop it. access(2),
by which initdb looks at its own programs, ignores the capabilities of a uid other than root, unless the process has the
securebit that unties capabilities from uids: so it gets that too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

NOBODY = 65_534

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_GET_SECUREBITS = 27
_PR_SET_SECUREBITS = 28
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAP_DAC_READ_SEARCH = 2
_CAP_SETPCAP = 8
_CAPABILITY_VERSION_3 = 0x20080522


class Unreachable(Exception):
    """The uid for servers cannot enter the folder and no capability helps."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The uid a server takes on, None for our own, and the capability it keeps, None for none."""

    uid: int | None
    capability: int | None

    def preexec(self, death_signal: signal.Signals) -> Callable[[], None]:
        """What a child does between fork and exec: become this identity, then ask to be signalled when we die.

        The request comes last, because the kernel forgets it when the uid changes. Only Linux knows it; elsewhere the
        keeper's pipe alone watches for a parent's death.
        """
        libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        uid, capability = self.uid, self.capability

        def prepare() -> None:
            if libc is not None and capability is not None:
                # Refused without CAP_SETPCAP: `check_program` has told whether it is needed.
                bits = libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0) | _SECBIT_NO_SETUID_FIXUP
                libc.prctl(_PR_SET_SECUREBITS, bits, 0, 0, 0)
                libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            if libc is not None:
                if capability is not None:
                    _keep_only(libc, capability)
                libc.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)

        return prepare

    def give(self, path: Path) -> None:
        """Hands one file or folder of ours over to this identity."""
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)


OURSELVES = Identity(uid=None, capability=None)


def server_identity(folder: Path) -> Identity:
    """The identity for a server that lives in `folder`. Raises Unreachable."""
    if os.geteuid() != 0:
        return OURSELVES
    if nobody_can_reach(folder):
        return Identity(uid=NOBODY, capability=None)
    held = _permitted_capabilities()
    for capability in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE):
        if held & (1 << capability):
            return Identity(uid=NOBODY, capability=capability)
    raise _unreachable(folder)


def check_program(program: Path, home: Path) -> None:
    """Makes sure that a process which keeps a capability to enter `home` finds `program` by access(2) too.

    Raises Unreachable.
    """
    if not nobody_can_reach(program) and not _permitted_capabilities() & (1 << _CAP_SETPCAP):
        raise _unreachable(home)


def _unreachable(home: Path) -> Unreachable:
    return Unreachable(
        f"Postgres does not run as root, and uid {NOBODY} cannot enter {home}: set RUNR_HOME to a folder that others"
        " may pass through (every folder above it has the permission x for others, such as /var/lib/runr), or run as"
        " an ordinary user"
    )


def nobody_can_reach(path: Path) -> bool:
    """Whether uid 65534 may enter or execute `path`; only root can ask."""
    question = ["test", "-x", str(path)]
    return subprocess.run(question, user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=False).returncode == 0


def _permitted_capabilities() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return int(lines.get("CapPrm", "0"), 16)


def _keep_only(libc: ctypes.CDLL, capability: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    bit = 1 << capability
    # effective, permitted, inheritable; the second triple is for capabilities above 31.
    data = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if libc.capset(header, data) != 0 or libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot keep the capability to enter the data folder")
