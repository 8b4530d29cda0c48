"""A call that ends in the middle is no fault of the server, though gRPC logs it as one."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_GRPC = "grpc._cython.cygrpc"
_BROKEN = ("ExecuteBatchError", "CancelledError")
"""What has happened: the peer is away, or the server was stopped under a call that it had not begun to handle."""


class _BrokenCalls(logging.Filter):
    """Takes gRPC's own errors about calls that have ended, and notes them in one line for who looks closely."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.exc_info[0] if record.exc_info else None
        if kind is None or kind.__name__ not in _BROKEN:
            return True
        log.debug("a call has ended in the middle", extra={"call": record.getMessage()})
        return False


_FILTER = _BrokenCalls()


def quiet_broken_calls() -> None:
    """From now on such calls are no errors in this process's log. A second time does nothing."""
    logging.getLogger(_GRPC).addFilter(_FILTER)
