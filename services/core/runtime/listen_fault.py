"""Why a server cannot listen, in words for whoever has chosen its address."""

from __future__ import annotations

import os
import socket

from services.core.runtime.parse import Address


def listen_fault(address: Address, error: OSError, variable: str) -> OSError:
    """The fault with the address and the name of the setting that chooses another; what the loop says has neither."""
    known = error.errno is not None and not isinstance(error, socket.gaierror)
    said = os.strerror(error.errno) if known and error.errno is not None else error.strerror or str(error)
    return OSError(f"cannot listen on {address}: {said}; {variable} chooses another address")
